// A row for each sequence that runs, waits, or is paused.
import {count, h, number, seconds, setText} from './dom.js';

const MAX_ROWS = 12;

export class Sequences {
  #own;
  #title = h('span');
  #rows = h('tbody');
  #table;
  #more = h('p.note');

  constructor(own) {
    this.#own = own;
    const head = ['Sequence', 'Prompt', 'Output', 'Blocks', 'Age'].map((text) => (
        h('th', {scope: 'col'}, text)));
    this.#table = h('div.scroll-x', {tabindex: 0, role: 'region', 'aria-label': 'Table of sequences'},
                    h('table', {}, h('thead', {}, h('tr', {}, head)), this.#rows));
    this.element = h('section', {'aria-label': 'Sequences'},
                     h('h3', {}, 'Sequences', this.#title), this.#table, this.#more);
  }

  show({engine, sequences, sequences_total: total}) {
    // There may be more paused sequences than are listed.
    const paused = total - engine.running - engine.waiting;
    setText(this.#title, `${number(engine.running)} running, ${number(engine.waiting)} waiting${
        paused > 0 ? `, ${number(paused)} paused` : ''}`);
    const shown = sequences.slice(0, MAX_ROWS);
    this.#table.hidden = shown.length === 0;
    const own = new Set(this.#own());
    while (this.#rows.children.length > shown.length) this.#rows.lastChild.remove();
    shown.forEach((sequence, i) => {
      const row = this.#rows.children[i] ?? this.#rows.appendChild(newRow());
      fill(row, sequence, own.has(sequence.request));
    });
    this.#more.hidden = shown.length > 0 && total <= shown.length;
    setText(this.#more, shown.length ? `and ${count(total - shown.length, 'more sequence')
        .replace('more sequence', 'more')}` : 'Nothing is running.');
  }
}

function newRow() {
  return h('tr', {}, h('td'),
           h('td', {}, h('span.progress', {'aria-hidden': true}, h('i')), h('span')),
           h('td'), h('td'), h('td'));
}

function fill(row, sequence, own) {
  const [name, prompt, output, blocks, age] = row.children;
  const computed = Math.min(sequence.computed_tokens, sequence.prompt_tokens);
  row.classList.toggle('mine', own);
  const state = sequence.state === 'running' ? '' : ` · ${sequence.state}`;
  setText(name, `${own ? 'yours' : shortId(sequence.request)}${
      sequence.choice ? `.${sequence.choice}` : ''}${state}`);
  const share = sequence.prompt_tokens ? 100 * computed / sequence.prompt_tokens : 0;
  prompt.firstChild.firstChild.style.setProperty('width', `${share}%`);
  prompt.firstChild.classList.toggle('done', computed >= sequence.prompt_tokens);
  setText(prompt.lastChild, `${number(computed)}/${number(sequence.prompt_tokens)}`);
  prompt.title = `${number(sequence.cached_tokens)} of them from the prefix cache`;
  setText(output, number(sequence.output_tokens));
  setText(blocks, number(sequence.blocks));
  setText(age, seconds(sequence.age_s));
}

// The end of a request's name, which tells them apart.
export function shortId(id) {
  return id.length > 8 ? `…${id.slice(-6)}` : id;
}
