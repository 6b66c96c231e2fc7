// Code in answers: a button that copies it, and colours, once its language's rules are loaded.
import {h} from './dom.js';
import {sanitized} from './markdown.js';

const MAX_COLOURED = 100_000;  // characters

let library = null;  // a promise; 230 kB, loaded only if there is code

function highlighter() {
  library ??= import('./lib/highlight.js').then(() => globalThis.hljs);
  return library;
}

// Puts a <pre> of rendered markdown into a frame.
export function decorateCode(pre) {
  const code = pre.querySelector('code');
  const language = code?.className.match(/(?:^| )language-([\w+#.-]+)/)?.[1] ?? '';
  const frame = h('div.code', {},
                  h('div.code-top', {}, h('span', {}, language),
                    h('button', {type: 'button', onclick: copy, 'aria-label': 'Copy the code'},
                      'Copy')));
  pre.replaceWith(frame);
  pre.tabIndex = 0;  // it may be wider than its frame: arrow keys scroll it
  pre.setAttribute('role', 'region');
  pre.setAttribute('aria-label', 'Code');
  frame.append(pre);
}

async function copy(event) {
  const button = event.currentTarget;
  const text = button.closest('.code').querySelector('pre').textContent;
  button.textContent = await copyText(text) ? 'Copied' : 'Not copied';
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

// Returns false if the browser forbids it: the page came neither over https nor from this machine.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// Colours all code in `element` whose language is known. For text that is complete.
export async function colourCode(element) {
  const blocks = [...element.querySelectorAll('pre > code[class*="language-"]')];
  if (!blocks.length) return;
  const hljs = await highlighter();
  for (const code of blocks) {
    const language = code.className.match(/language-([\w+#.-]+)/)?.[1];
    const text = code.textContent;
    if (!language || !hljs.getLanguage(language) || text.length > MAX_COLOURED) continue;
    code.replaceChildren(sanitized(hljs.highlight(language, text, true).value));
  }
}
