// Turns a model's text into elements, safely, while it is still being generated.
//
// Three measures protect the page from a model's text. Raw HTML is shown as text and images become
// links, so the parser outputs only elements that this file asks for. DOMPurify passes only the
// tags and attributes below. The page's Content-Security-Policy runs and loads only the server's
// own files. KaTeX renders formulas afterwards, from text, without its trust option.
import './lib/marked.js';
import './lib/purify.js';

import {decorateCode} from './code.js';
import {escape, h} from './dom.js';
import {extensions, sameFormula, typeset} from './math.js';

const {marked, DOMPurify} = globalThis;

// Debian 12's patched DOMPurify (2.4.1) checks depths with a variable of this name outside the
// function that defines it, and fails without one.
globalThis.shadowNode ??= Object.freeze({__depth: 0});

const PURIFY = {
  ALLOWED_TAGS: ['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6',
                 'hr', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th',
                 'thead', 'tr', 'ul'],
  ALLOWED_ATTR: ['align', 'class', 'href', 'start', 'title'],
  ADD_URI_SAFE_ATTR: ['align', 'start'],  // attributes that are not URLs; others count as URLs
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const renderer = {
  html: escape,
  image: (href, title, text) => `<a href="${escape(href ?? '')}">${escape(text || href || '')}</a>`,
  checkbox: (checked) => (checked ? '☑ ' : '☐ '),
};
marked.use({extensions, renderer, gfm: true, breaks: false, headerIds: false, mangle: false});

// Turns markup that a trusted function made of untrusted text into elements.
export function sanitized(html) {
  const fragment = DOMPurify.sanitize(html, PURIFY);
  for (const link of fragment.querySelectorAll('a')) {
    if (!link.hasAttribute('href')) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = '_blank';
    link.rel = 'noopener noreferrer nofollow';
  }
  return fragment;
}

function rendered(tokens) {
  const fragment = sanitized(marked.parser(tokens));
  for (const table of fragment.querySelectorAll('table')) {
    const frame = h('div.table', {tabindex: 0, role: 'region', 'aria-label': 'Table'});
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const pre of fragment.querySelectorAll('pre')) decorateCode(pre);
  return fragment;
}

// Normalizes like the parser, so that its offsets are offsets in our text.
function normalized(text) {
  return text.replace(/\r\n?/g, '\n').replace(/^( *)(\t+)/gm, (_, spaces, tabs) => (
      spaces + '    '.repeat(tabs.length)));
}

const OPEN_FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})[^\n]*$/;

// Shows a growing text in `element`. Blocks that can no longer change are rendered once. Only the
// open last block is rendered again, and only its differences change the page. So the cost is
// linear in an answer's length, and selections and reading positions stay.
export class MarkdownView {
  #element;
  #text = '';
  #closed = 0;       // characters of #text whose blocks are final
  #scanned = 0;      // characters searched for ends of blocks: whole lines
  #firstOpen = null; // the first node of the open block; null: there is none
  #fence = null;     // {end, code, shown}: the open block is code between fences

  constructor(element) {
    this.#element = element;
  }

  // Shows `text`. Starts anew unless it continues the previous text.
  update(text) {
    text = normalized(text);
    if (!text.startsWith(this.#text)) this.#reset();
    this.#text = text;
    this.#closeBlocks();
    if (this.#fence) this.#showFence();
    else this.#showOpen();
  }

  // The text is complete.
  finish(text) {
    this.update(text);
    this.#fence = null;
    this.#showOpen();
    this.#closed = this.#text.length;
    this.#firstOpen = null;
  }

  #reset() {
    this.#element.replaceChildren();
    this.#text = '';
    this.#closed = this.#scanned = 0;
    this.#firstOpen = null;
    this.#fence = null;
  }

  // Whole lines decide: "2" may still become "2. next item" of the list before it.
  #closeBlocks() {
    const end = this.#text.lastIndexOf('\n') + 1;
    if (end <= this.#scanned) return;
    if (this.#fence && !this.#fenceEnds(this.#scanned, end)) {
      this.#scanned = end;
      return;
    }
    this.#fence = null;
    this.#scanned = end;
    const tokens = marked.lexer(this.#text.slice(this.#closed, end));
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === 'space') --last;
    const final = tokens.slice(0, Math.max(last, 0));
    const source = final.map((token) => token.raw).join('');
    if (source && this.#text.startsWith(source, this.#closed)) {
      this.#replaceOpen(rendered(final));
      this.#firstOpen = null;
      this.#closed += source.length;
    }
    this.#findFence(end);
  }

  // Whether the open block is code whose closing fence has not come yet: then its lines are text
  // and need no parser.
  #findFence(end) {
    const firstEnd = this.#text.indexOf('\n', this.#closed);
    if (firstEnd < 0) return;
    const opening = this.#text.slice(this.#closed, firstEnd).match(OPEN_FENCE);
    if (!opening) return;
    const fence = opening[1];
    this.#fence = {end: new RegExp(`^ {0,3}${fence[0]}{${fence.length},} *$`), code: null, shown: 0,
                   start: firstEnd + 1};
    if (this.#fenceEnds(firstEnd + 1, end)) this.#fence = null;
  }

  #fenceEnds(from, to) {
    return this.#text.slice(from, to).split('\n').some((line) => this.#fence.end.test(line));
  }

  // The open code grows at its end.
  #showFence() {
    const fence = this.#fence;
    if (!fence.code) {
      const opening = this.#text.slice(this.#closed, fence.start);
      this.#replaceOpen(rendered(marked.lexer(opening)));
      fence.code = document.createTextNode('');
      this.#element.lastElementChild.querySelector('code').replaceChildren(fence.code);
      fence.shown = fence.start;
    }
    fence.code.appendData(this.#text.slice(fence.shown));
    fence.shown = this.#text.length;
  }

  #showOpen() {
    if (this.#closed === this.#text.length && !this.#firstOpen) return;
    this.#replaceOpen(rendered(marked.lexer(this.#text.slice(this.#closed))));
  }

  #replaceOpen(fragment) {
    const old = [];
    for (let node = this.#firstOpen; node; node = node.nextSibling) old.push(node);
    const nodes = [...fragment.childNodes].filter((node) => node.nodeType === 1);
    fragment.replaceChildren(...nodes);
    const before = old.length ? old[0].previousSibling : this.#element.lastChild;
    morph(this.#element, old, nodes);
    this.#firstOpen = before ? before.nextSibling : this.#element.firstChild;
    const shown = [];
    for (let node = this.#firstOpen; node; node = node.nextSibling) shown.push(node);
    typeset(shown);
  }
}

// Changes `old`, the last children of `parent`, into `nodes`, and keeps elements where it can.
function morph(parent, old, nodes) {
  nodes.forEach((node, i) => {
    const was = old[i];
    if (!was) parent.append(node);
    else if (was.isEqualNode(node) || sameFormula(was, node)) return;
    else if (was.nodeType === 3 && node.nodeType === 3) morphText(was, node.data);
    else if (was.nodeType === 1 && was.nodeName === node.nodeName && was.className === node.className &&
             !was.matches('.code, .math')) {
      copyAttributes(node, was);
      morph(was, [...was.childNodes], [...node.childNodes]);
    } else was.replaceWith(node);
  });
  for (const extra of old.slice(nodes.length)) extra.remove();
}

function copyAttributes(from, to) {
  for (const name of to.getAttributeNames()) if (!from.hasAttribute(name)) to.removeAttribute(name);
  for (const {name, value} of from.attributes) {
    if (to.getAttribute(name) !== value) to.setAttribute(name, value);
  }
}

function morphText(text, data) {
  if (data.startsWith(text.data)) text.appendData(data.slice(text.data.length));
  else text.data = data;
}
