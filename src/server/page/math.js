// Formulas in answers: finds them in the markdown and renders them with KaTeX, loaded on first use.
//
// Delimiters: \( \) and $ $ within a line; \[ \] and $$ $$ on lines of their own. Until a formula
// is rendered, and if KaTeX cannot render it, its source is shown.

import {escape} from './dom.js';

const MAX_SOURCE = 4000;  // characters
const FORMULA = '.math:not(.open)';
// KaTeX bounds how often macros expand, but a definition gets around that (CVE-2024-28243, -28244).
const DEFINES = /\\(?:[egx]?def|(?:future)?let|(?:new|renew|provide)command)(?![a-zA-Z])/;
const OPTIONS = {trust: false, strict: 'ignore', maxSize: 20, throwOnError: true};

// Prices are not formulas: "$5 or $6" has a space before the second sign, "$5-$6" a digit after it.
const INLINE = [
  [/^\\\(([^]{1,4000}?)\\\)/, false],
  [/^\\\[([^]{1,4000}?)\\\]/, true],
  [/^\$\$(?!\$)([^$]{1,4000})\$\$(?!\$)/, true],
  [/^\$(?![\s$])([^$`]{0,1000}[^$`\s\\])\$(?![\w$])/, false],
];
const OPENING = /^ {0,3}(\$\$(?!\$)|\\\[)/;

// A block ends at its closing sign. Without one it ends at an empty line (it is a paragraph) or at
// the end of the text (the rest may still come). The first line alone decides that it is a block,
// so text that is already shown need not be read again.
function tokenizeBlock(source) {
  const opening = source.match(OPENING);
  if (!opening) return undefined;
  const empty = source.match(/\n[ \t]*\n/);
  const block = source.slice(0, empty?.index);
  const start = opening[0].length;
  const end = block.indexOf(opening[1] === '$$' ? '$$' : '\\]', start);
  if (end < 0) {
    const token = {type: 'formulaBlock', raw: block, text: block, open: !empty, tokens: []};
    if (empty) this.lexer.inline(block, token.tokens);
    return token;
  }
  const [after, sign] = block.slice(end + 2).match(/^[ \t]*([.,;:]?)[ \t]*\n?/);
  return {type: 'formulaBlock', raw: block.slice(0, end + 2) + after,
          text: block.slice(start, end) + sign, tokens: null};
}

// Returns the index in `source` at which a block interrupts the paragraph.
function startOfBlock(source) {
  const found = source.match(/\n(?:\n| {0,3}(?:\$\$(?!\$)|\\\[))/);
  return found && found[0] !== '\n\n' ? found.index : undefined;
}

function renderBlock({text, tokens, open}) {
  if (open) return `<p class="math open">${escape(text)}</p>`;
  if (tokens) return `<p>${this.parser.parseInline(tokens)}</p>`;
  return `<p class="math display">${escape(text)}</p>`;
}

function tokenizeInline(source, tokens) {
  if (source[0] === '$' && /\w/.test(tokens.at(-1)?.raw.at(-1) ?? '')) return undefined;  // US$
  for (const [pattern, display] of INLINE) {
    const found = source.match(pattern);
    if (found) return {type: 'formula', raw: found[0], text: found[1], display};
  }
  return undefined;
}

// For marked.
export const extensions = [
  {name: 'formulaBlock', level: 'block', start: startOfBlock, tokenizer: tokenizeBlock,
   renderer: renderBlock},
  {name: 'formula', level: 'inline', tokenizer: tokenizeInline,
   renderer: ({text, display}) => (
       `<span class="math${display ? ' display' : ''}">${escape(text)}</span>`),
   start: (source) => source.match(/\$|\\[([]/)?.index},
];

let library = null;               // a promise; an answer without formulas does not need it
let katex = null;                 // the library, once it is loaded
const sources = new WeakMap();    // rendered or failed elements → their source

// Returns whether two elements show the same formula; the first may be rendered already.
export function sameFormula(was, node) {
  return sources.get(was) === node.textContent && was.className === node.className;
}

// Renders the formulas in `elements`, at once if KaTeX is loaded.
export function typeset(elements) {
  const waiting = [];
  for (const element of elements) {
    if (element.matches(FORMULA)) waiting.push(element);
    waiting.push(...element.querySelectorAll(FORMULA));
  }
  if (katex) waiting.forEach(set);
  else if (waiting.length) load().then(() => waiting.forEach(set), console.error);
}

function load() {
  library ??= Promise.all([import('./lib/katex.js'), loadStyle('/page/lib/katex.css')])
      .then(() => { katex = globalThis.katex; })
      .catch((error) => {
        library = null;  // the next formula tries again
        throw error;
      });
  return library;
}

function loadStyle(href) {
  const link = document.createElement('link');
  Object.assign(link, {rel: 'stylesheet', href});
  return new Promise((resolve, reject) => {
    link.onload = resolve;
    link.onerror = () => {
      link.remove();
      reject(new Error(`${href} could not be loaded`));
    };
    document.head.append(link);
  });
}

function set(element) {
  if (sources.has(element)) return;
  const source = element.textContent;
  sources.set(element, source);
  if (source.length > MAX_SOURCE || DEFINES.test(source)) return;
  try {
    const tree = katex.__renderToDomTree(source, {
      ...OPTIONS, displayMode: element.classList.contains('display')});
    withoutStyleAttributes(tree);
    element.replaceChildren(tree.toNode());
  } catch {
    // KaTeX cannot parse it, or it is nested too deeply: the source stays.
  }
}

// Removes style attributes, which the page's policy forbids. KaTeX writes them only in its hidden
// MathML; it sets visible styles by script, which is allowed.
function withoutStyleAttributes(node) {
  delete node.attributes?.style;
  node.children?.forEach(withoutStyleAttributes);
}
