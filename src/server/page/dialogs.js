// The dialogs: sampling, API key, confirmation, shortcuts.
import {apiKey, setApiKey} from './api.js';
import {$} from './dom.js';

const FIELDS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed'];

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
  };
  fill(settings);
  $('settings-reset').onclick = () => fill({});
  form.onsubmit = (event) => {
    event.preventDefault();
    const chosen = {};
    for (const name of FIELDS) {
      if (form.elements[name].value !== '') chosen[name] = Number(form.elements[name].value);
    }
    $('settings').close();
    apply(chosen);
  };
  $('settings').showModal();
}

// "temperature 0.7 · top_p 0.9", for the button that leads there.
export function describeSettings(settings) {
  const parts = FIELDS.filter((name) => settings[name] !== undefined)
                    .map((name) => `${name} ${settings[name]}`);
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
