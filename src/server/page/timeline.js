// The last requests: when they waited, read their prompts and wrote their answers.
import {count, h, number, seconds, setText} from './dom.js';
import {shortId} from './sequences.js';

const LANES = 12;
const PARTS = ['queued', 'prefill', 'decode'];
const MIN_SPAN = 2;     // seconds
const LINGER = 120;     // seconds for which ended requests are shown

export class Timeline {
  #own;
  #title = h('span');
  #lanes = h('div.lanes', {role: 'list'});
  #from = h('span');
  #legend = h('p.legend', {}, PARTS.map((part) => h('span', {}, h(`i.swatch.${part}`), part)));
  #scale = h('div.lane-scale', {'aria-hidden': true}, this.#from, h('span', {}, 'now'));
  #mine = new Set();  // ended ones too

  constructor(own) {
    this.#own = own;
    this.element = h('section', {'aria-label': 'Last requests'},
                     h('h3', {}, 'Last requests', this.#title), this.#lanes, this.#scale,
                     this.#legend);
  }

  show({requests, time}) {
    for (const id of this.#own()) this.#mine.add(id);
    const latest = [...requests].sort((a, b) => b.arrived - a.arrived).slice(0, LANES);
    const recent = latest.filter(({ended}) => ended === null || time - ended < LINGER);
    const shown = recent.length ? recent : latest.slice(0, 1);
    this.#scale.hidden = shown.length === 0;
    setText(this.#title, shown.length ? count(requests.length, 'request') + ' kept' : 'none yet');
    const end = recent.length ? time : Math.max(0, ...shown.map((request) => request.ended ?? time));
    const begin = Math.min(end - MIN_SPAN, ...shown.map(({arrived}) => arrived));
    while (this.#lanes.children.length > shown.length) this.#lanes.lastChild.remove();
    shown.forEach((request, i) => {
      const lane = this.#lanes.children[i] ?? this.#lanes.appendChild(newLane(PARTS));
      this.#fill(lane, request, time, begin, end);
    });
    setText(this.#from, `${seconds(time - begin)} ago`);
  }

  #fill(lane, request, time, begin, end) {
    const [name, bar, result] = lane.children;
    const mine = this.#mine.has(request.id);
    const over = request.ended ?? time;
    const marks = [request.arrived, request.admitted ?? over, request.first_token ?? over, over];
    PARTS.forEach((part, i) => {
      const piece = bar.children[i];
      const left = 100 * (marks[i] - begin) / (end - begin);
      const width = 100 * (marks[i + 1] - marks[i]) / (end - begin);
      piece.hidden = !(width > 0);
      piece.style.setProperty('left', `${left}%`);
      piece.style.setProperty('width', `${Math.max(0, width)}%`);
    });
    lane.classList.toggle('mine', mine);
    lane.classList.toggle('failed', request.state === 'error');
    setText(name, mine ? 'yours' : shortId(request.id));
    setText(result, request.state === 'running' ? `${number(request.output_tokens)}…`
        : request.state === 'error' || request.state === 'cancelled' ? request.state
        : `${number(request.output_tokens)} tok`);
    const spans = PARTS.map((part, i) => `${part} ${seconds(marks[i + 1] - marks[i])}`).join(', ');
    const text = `${request.state}, ${count(request.prompt_tokens, 'prompt token')}, ${
        number(request.cached_tokens)} cached, ${count(request.output_tokens, 'token')}; ${spans}${
        request.preemptions ? `; preempted ${count(request.preemptions, 'time')}` : ''}`;
    lane.title = text;
    lane.setAttribute('aria-label', `${mine ? 'Yours' : shortId(request.id)}: ${text}`);
  }
}

// An empty lane, with a piece of its bar for each part.
export function newLane(parts) {
  return h('div.lane', {role: 'listitem'}, h('span.name'),
           h('span.bar', {'aria-hidden': true}, parts.map((part) => h(`i.${part}`))),
           h('span.end'));
}
