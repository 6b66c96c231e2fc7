// The dialog of sampling settings.
import {$} from './dom.js';

// Kinds of fields. `show` makes a field's text, `read` a setting from it: undefined if there is
// none. It throws an Error for the user if the text means nothing.
const NUMBER = {show: String, read: (text) => (text === '' ? undefined : Number(text))};
const TEXTS = {
  show: (texts) => texts.map(onOneLine).join('\n'),
  read: (text) => nonEmpty(text.split('\n').filter(Boolean).map(fromOneLine)),
};
const BIAS = {
  show: (bias) => Object.entries(bias).map(([id, value]) => `${id}: ${value}`).join('\n'),
  read: readBias,
};
const SCHEMA = {show: (schema) => JSON.stringify(schema, null, 2), read: readSchema};

// The settings that have a field of their name.
const FIELDS = {
  temperature: NUMBER, top_p: NUMBER, top_k: NUMBER, min_p: NUMBER, max_tokens: NUMBER, seed: NUMBER,
  stop: TEXTS,
  typical_p: NUMBER, top_n_sigma: NUMBER, dynatemp_range: NUMBER, dynatemp_exponent: NUMBER,
  xtc_probability: NUMBER, xtc_threshold: NUMBER, repetition_penalty: NUMBER,
  presence_penalty: NUMBER, frequency_penalty: NUMBER, repeat_last_n: NUMBER, dry_multiplier: NUMBER,
  dry_base: NUMBER, dry_allowed_length: NUMBER, dry_penalty_last_n: NUMBER,
  thinking_token_budget: NUMBER, bad_words: TEXTS, logit_bias: BIAS,
};
const CHECKED = {logit_bias: BIAS, schema: SCHEMA};

// A browser says nothing about an invalid field that it cannot show.
$('settings-more').addEventListener('invalid', () => { $('settings-more').open = true; }, true);

// Shows the settings; `apply(settings)` gets what was chosen. Empty fields are left out.
export function editSettings(settings, apply) {
  const form = $('settings-form');
  const {elements} = form;
  const fill = (from) => {
    for (const [name, {show}] of Object.entries(FIELDS)) {
      elements[name].value = from[name] === undefined ? '' : show(from[name]);
    }
    $('settings-more').open = Object.keys(FIELDS).some(
        (name) => name in from && $('settings-more').contains(elements[name]));
    const schema = from.response_format?.json_schema?.schema;
    elements.schema.value = schema ? SCHEMA.show(schema) : '';
    elements.any_object.checked = from.response_format?.type === 'json_object';
    for (const name of Object.keys(CHECKED)) elements[name].oninput();
  };
  for (const [name, {read}] of Object.entries(CHECKED)) {
    const field = elements[name];
    const problem = $(`${name}-problem`);
    field.oninput = () => {
      field.setCustomValidity(problemOf(read, field.value));
      if (field.validity.valid) problem.textContent = '';
    };
    field.onchange = field.oninvalid = () => { problem.textContent = field.validationMessage; };
  }
  fill(settings);
  $('settings-reset').onclick = () => fill({});
  form.onsubmit = (event) => {
    event.preventDefault();
    const chosen = {};
    const schema = SCHEMA.read(elements.schema.value);
    if (schema) {
      chosen.response_format = {type: 'json_schema', json_schema: {name: 'answer', schema}};
    } else if (elements.any_object.checked) {
      chosen.response_format = {type: 'json_object'};
    }
    for (const [name, {read}] of Object.entries(FIELDS)) {
      const value = read(elements[name].value);
      if (value !== undefined) chosen[name] = value;
    }
    $('settings').close();
    apply(chosen);
  };
  $('settings').showModal();
}

// "temperature 0.7 · top_p 0.9 · JSON", for the button that leads there.
export function describeSettings(settings) {
  const parts = Object.entries(FIELDS).filter(([name]) => settings[name] !== undefined)
                    .map(([name, {show}]) => `${name} ${show(settings[name])}`);
  if (settings.response_format) parts.push('JSON');
  return parts.join(' · ') || 'Sampling';
}

function problemOf(read, text) {
  try {
    read(text);
    return '';
  } catch (error) {
    return error.message;
  }
}

function nonEmpty(list) {
  return list.length ? list : undefined;
}

// A line break in a text is "\n" on a line, and a backslash "\\" where it would mean something else.
function onOneLine(text) {
  return text.replace(/\\(?=[\\n\n])/g, '\\\\').replaceAll('\n', '\\n');
}

function fromOneLine(line) {
  return line.replace(/\\([\\n])/g, (_, c) => (c === 'n' ? '\n' : c));
}

// Reads "1734: -100", one pair per line or with commas between them, also as JSON.
function readBias(text) {
  const bias = {};
  for (const part of text.replace(/^\s*\{|\}\s*$/g, '').split(/[,\n]/)) {
    const pair = part.trim();
    if (!pair) continue;
    const [, digits, value] = pair.match(/^"?(\d{1,9})"?\s*:\s*(\S+)$/) ?? [];
    if (!digits) throw new Error(`“${pair}” is not a token id and its bias, such as 1734: -100.`);
    const id = Number(digits);
    if (!(Math.abs(Number(value)) <= 100)) {
      throw new Error(`The bias of token ${id} must be a number from -100 to 100, not “${value}”.`);
    }
    if (id in bias) throw new Error(`Token ${id} has two biases.`);
    bias[id] = Number(value);
  }
  return Object.keys(bias).length ? bias : undefined;
}

function readSchema(text) {
  if (!text.trim()) return undefined;
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // Below.
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new Error('This is not a JSON object.');
}
