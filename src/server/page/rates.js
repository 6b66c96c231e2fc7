// Counts, tokens per second over the last minute, and bytes read per second beside the measured
// bandwidth of the memory.
import {h, number, percent, setText, svg} from './dom.js';

const SAMPLES = 240;  // a minute of four a second
const WIDTH = 240;
const HEIGHT = 46;

export class Rates {
  #values = {};
  #history = [];
  #line = svg('polyline', {class: 'spark-line'});
  #area = svg('polygon', {class: 'spark-area'});
  #spark = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img'},
               this.#area, this.#line);
  #weights = h('i.weights');
  #kv = h('i.kv');
  #meter = h('div.meter', {role: 'img'}, this.#weights, this.#kv);

  constructor() {
    const tile = (name, label) => {
      this.#values[name] = h('dd', {id: `tile-${name}`}, '–');
      return h('div', {}, h('dt', {}, label), this.#values[name]);
    };
    this.#values.output = h('b', {}, '–');
    this.#values.prompt = h('small');
    this.#values.ceiling = h('span');
    this.#values.bandwidth = h('p.legend');
    this.#values.drafts = h('p.legend');
    this.element = h('div', {},
        h('section', {'aria-label': 'Load'},
          h('dl.tiles', {}, tile('running', 'running'), tile('waiting', 'waiting'),
            tile('hits', 'prefix hits'), tile('preemptions', 'preempted'))),
        h('section', {'aria-label': 'Speed'},
          h('div.rate', {}, h('div.now', {}, this.#values.output,
                              h('small', {}, 'output tokens/s'), h('br'), this.#values.prompt),
            this.#spark),
          this.#values.drafts),
        h('section', {'aria-label': 'Memory bandwidth'},
          h('h3', {}, 'Memory traffic', this.#values.ceiling), this.#meter,
          this.#values.bandwidth));
  }

  show({engine}) {
    const {rates} = engine;
    const values = this.#values;
    setText(values.running, number(engine.running));
    setText(values.waiting, number(engine.waiting));
    setText(values.hits, percent(
        engine.cached_prompt_tokens, engine.queried_prompt_tokens ?? engine.prompt_tokens));
    setText(values.preemptions, number(engine.preemptions));
    setText(values.output, number(rates.output_tok_s));
    setText(values.prompt, `${number(rates.prompt_tok_s)} of prompts, ${
        number(rates.steps_s)} steps/s`);
    setText(values.drafts, textOfDrafts(engine));
    this.#draw(rates.output_tok_s);
    this.#showBandwidth(rates);
  }

  #draw(value) {
    this.#history.push(value);
    if (this.#history.length > SAMPLES) this.#history.shift();
    const top = Math.max(...this.#history, 1e-9);
    const first = SAMPLES - this.#history.length;
    const points = this.#history.map((sample, i) => {
      const x = (first + i) * WIDTH / (SAMPLES - 1);
      return `${x.toFixed(1)},${(HEIGHT - 1 - (HEIGHT - 4) * sample / top).toFixed(1)}`;
    });
    this.#line.setAttribute('points', points.join(' '));
    const left = (first * WIDTH / (SAMPLES - 1)).toFixed(1);
    this.#area.setAttribute('points', `${left},${HEIGHT} ${points.join(' ')} ${WIDTH},${HEIGHT}`);
    this.#spark.setAttribute('aria-label', `Output tokens per second: now ${number(value)}, at most ${
        number(Math.max(...this.#history))} in the last minute`);
  }

  #showBandwidth({weight_gb_s: weights, kv_gb_s: kv, ceiling_gb_s: ceiling}) {
    const both = weights + kv;
    const full = ceiling ?? Math.max(both, 1e-9);
    this.#weights.style.setProperty('width', `${Math.min(100, 100 * weights / full)}%`);
    this.#kv.style.setProperty('width', `${Math.min(100, 100 * kv / full)}%`);
    const text = ceiling ? `${number(both)} of ${number(ceiling)} GB/s, ${percent(both, ceiling)}`
                         : `${number(both)} GB/s; this machine’s maximum is not measured yet`;
    setText(this.#values.ceiling, text);
    this.#meter.setAttribute('aria-label', text);
    const traffic = this.#values.bandwidth;
    if (!traffic.firstChild) {
      traffic.append(h('span', {}, h('i.swatch.weights'), 'weights ', h('b')),
                     h('span', {}, h('i.swatch.kv'), 'KV cache ', h('b')));
    }
    const [w, k] = traffic.querySelectorAll('b');
    setText(w, `${number(weights)} GB/s`);
    setText(k, `${number(kv)} GB/s`);
  }
}

// Empty if there were none, and with servers of earlier versions, which do not count them all.
function textOfDrafts({drafts, accepted_drafts: accepted, drafts_at: at,
                       accepted_drafts_at: acceptedAt, saved_seconds: saved}) {
  if (!drafts || !at) return '';
  const places = at.map((count, i) => percent(acceptedAt[i], count)).join(', ');
  return `${percent(accepted, drafts)} of ${number(drafts)} drafts accepted (by place in the step: ${
      places}); about ${number(saved)} s saved`;
}
