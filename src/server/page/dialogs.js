// The dialogs: sampling, API key, confirmation, shortcuts.
import {apiKey, setApiKey} from './api.js';
import {$} from './dom.js';

const MORE_FIELDS = ['typical_p', 'top_n_sigma', 'dynatemp_range', 'xtc_probability', 'xtc_threshold',
                     'repetition_penalty', 'presence_penalty', 'frequency_penalty', 'repeat_last_n',
                     'dry_multiplier', 'dry_base', 'dry_allowed_length', 'dry_penalty_last_n',
                     'thinking_token_budget'];
const FIELDS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', ...MORE_FIELDS];

export function wireDialogs() {
  for (const dialog of document.querySelectorAll('dialog')) {
    for (const button of dialog.querySelectorAll('[data-close]')) {
      button.addEventListener('click', () => dialog.close());
    }
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog) dialog.close();  // a click beside the dialog
    });
  }
}

// Shows the settings; `apply(settings)` gets what was chosen. Empty fields are left out.
export function editSettings(settings, apply) {
  const form = $('settings-form');
  const fill = (from) => {
    for (const name of FIELDS) form.elements[name].value = from[name] ?? '';
    $('settings-more').open = MORE_FIELDS.some((name) => name in from);
    const schema = from.response_format?.json_schema?.schema;
    form.elements.schema.value = schema ? JSON.stringify(schema, null, 2) : '';
    form.elements.schema.setCustomValidity('');
    form.elements.any_object.checked = from.response_format?.type === 'json_object';
  };
  fill(settings);
  $('settings-reset').onclick = () => fill({});
  form.elements.schema.oninput = (event) => {
    event.target.setCustomValidity(isObject(event.target.value) ? '' : 'This is not a JSON object.');
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    const chosen = {};
    const schema = form.elements.schema.value.trim();
    if (schema) {
      chosen.response_format = {type: 'json_schema',
                                json_schema: {name: 'answer', schema: JSON.parse(schema)}};
    } else if (form.elements.any_object.checked) {
      chosen.response_format = {type: 'json_object'};
    }
    for (const name of FIELDS) {
      if (form.elements[name].value !== '') chosen[name] = Number(form.elements[name].value);
    }
    $('settings').close();
    apply(chosen);
  };
  $('settings').showModal();
}

// Whether a text is a JSON object or blank.
function isObject(text) {
  if (!text.trim()) return true;
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

// "temperature 0.7 · top_p 0.9 · JSON", for the button that leads there.
export function describeSettings(settings) {
  const parts = FIELDS.filter((name) => settings[name] !== undefined)
                    .map((name) => `${name} ${settings[name]}`);
  if (settings.response_format) parts.push('JSON');
  return parts.join(' · ') || 'Sampling';
}

// Resolves to whether there is a new key.
export function askForKey(text) {
  const form = $('key-form');
  $('key-text').textContent = text;
  form.elements.key.value = '';
  $('key-forget').hidden = !apiKey();
  if (!$('key').open) $('key').showModal();
  form.elements.key.focus();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      setApiKey(form.elements.key.value.trim(), form.elements.remember.checked);
      $('key').close();
      resolve(true);
    };
    $('key-forget').onclick = () => {
      setApiKey('', false);
      $('key').close();
      resolve(true);
    };
    $('key').onclose = () => {
      form.elements.key.value = '';
      resolve(false);
    };
  });
}

export function confirm(question, yes) {
  $('confirm-text').textContent = question;
  $('confirm-yes').textContent = yes;
  $('confirm').showModal();
  return new Promise((resolve) => {
    $('confirm-form').onsubmit = (event) => {
      event.preventDefault();
      resolve(true);
      $('confirm').close();
    };
    $('confirm').onclose = () => resolve(false);
  });
}
