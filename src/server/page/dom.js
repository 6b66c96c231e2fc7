// Makes elements, and formats numbers for people.

export const $ = (id) => document.getElementById(id);

// An element: h('a.note', {href: '/x', onclick: f, 'aria-label': 'X'}, 'text', child, ...). Children
// that are null or false are left out; strings are text, never markup.
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(' ');
  set(element, attributes);
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

// The same for SVG.
export function svg(name, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  set(element, attributes);
  element.append(...children.flat());
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
}

// Returns markup that shows the text literally.
export function escape(text) {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

// Changes the text only if it differs, so that a selection and a screen reader's position survive.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const tenths = new Intl.NumberFormat('en', {maximumFractionDigits: 1, minimumFractionDigits: 1});

// 1,234 · 56 · 7.8 · 0
export function number(value) {
  if (!Number.isFinite(value)) return '–';
  return value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value) ? tenths.format(value)
                                                                         : whole.format(value);
}

// 134.5M, 7.2B
export function short(value) {
  for (const [size, unit] of [[1e9, 'B'], [1e6, 'M'], [1e3, 'k']]) {
    if (value >= size) return `${parseFloat((value / size).toPrecision(3))}${unit}`;
  }
  return number(value);
}

// 98.4 MB
export function bytes(value) {
  for (const [size, unit] of [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']]) {
    if (value >= size) return `${parseFloat((value / size).toPrecision(3))} ${unit}`;
  }
  return `${number(value)} B`;
}

// 42 ms, 1.3 s, 2 min
export function seconds(value) {
  if (!Number.isFinite(value)) return '–';
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 99.95) return `${value.toFixed(1)} s`;
  return value < 5400 ? `${Math.round(value / 60)} min` : `${Math.round(value / 3600)} h`;
}

export function percent(part, of) {
  return of > 0 ? `${Math.round(100 * Math.min(1, part / of))} %` : '–';
}

// "1 block", "2 blocks"
export function count(n, what) {
  return `${number(n)} ${what}${n === 1 ? '' : 's'}`;
}

export function download(name, text) {
  const link = h('a', {href: URL.createObjectURL(new Blob([text], {type: 'application/json'})),
                       download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
