// Formulas in answers: where they are in the markdown, and KaTeX, which sets them once there is one.
//
// Delimiters: \( \) and $ $ within a line; \[ \] and $$ $$ on lines of their own. Until a formula is
// set, its source stands in its place, and it stays there if KaTeX does not understand it.

import {escape} from './dom.js';

const MAX_SOURCE = 4000;  // characters
const FORMULA = '.math:not(.open)';
// KaTeX bounds how often macros expand, but a definition gets around that (CVE-2024-28243, -28244).
const DEFINES = /\\(?:[egx]?def|(?:future)?let|(?:new|renew|provide)command)(?![a-zA-Z])/;
const OPTIONS = {trust: false, strict: 'ignore', maxSize: 20, throwOnError: true};

// A price is no formula: "$5 or $6" has a space before the second sign, "$5-$6" a digit after it.
const INLINE = [
  [/^\\\(([^]{1,4000}?)\\\)/, false],
  [/^\\\[([^]{1,4000}?)\\\]/, true],
  [/^\$\$(?!\$)([^$]{1,4000})\$\$(?!\$)/, true],
  [/^\$(?![\s$])([^$`]{0,1000}[^$`\s\\])\$(?![\w$])/, false],
];
const OPENING = /^ {0,3}(\$\$(?!\$)|\\\[)/;

// A block from its opening sign to the closing one, to an empty line (then it is a paragraph) or to
// the end of the text (then the rest may still come). Its first line decides that it is this block:
// what has been shown of a growing text needs no second look.
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

// The index at which a block ends the paragraph that `source` goes on with.
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
let katex = null;                 // the same, when it is there
const sources = new WeakMap();    // elements that are set, or have failed → their source

// Whether two elements show the same formula, the first of them perhaps set.
export function sameFormula(was, node) {
  return sources.get(was) === node.textContent && was.className === node.className;
}

// Sets the formulas in `elements`, at once if KaTeX has been loaded.
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
    // KaTeX does not understand it, or it is nested too deeply: it stays as it is written.
  }
}

// The page's policy forbids them. KaTeX writes them only for looks in MathML, which nobody sees; the
// styles of what is seen are set one by one, which is allowed.
function withoutStyleAttributes(node) {
  delete node.attributes?.style;
  node.children?.forEach(withoutStyleAttributes);
}
