// The engine panel: asks for /debug/state while somebody can see it, and hands it to its parts.
import {BlockMap} from './blockmap.js';
import {call} from './api.js';
import {$, bytes, h, number, setText, short} from './dom.js';
import {PrefixTree} from './prefix.js';
import {Ranks} from './ranks.js';
import {Rates} from './rates.js';
import {Sequences} from './sequences.js';
import {Timeline} from './timeline.js';

const BUSY = 250;       // ms between questions: at most four a second
const IDLE = 1000;      // while nothing runs
const IDLE_AFTER = 12;  // answers without anything running
const RETRY = 4000;     // after an error

const NOTES = {
  0: 'The server cannot be reached; trying again.',
  401: 'The engine’s state needs the API key.',
  403: 'This key may not see the engine’s state.',
  404: 'This server does not show its engine’s state. The chat works without it.',
};

// Events: 'state' (detail: the state), 'key' (the server asks for one).
export class EnginePanel extends EventTarget {
  #parts;
  #timer = 0;
  #asking = false;
  #asked = -BUSY;  // time of the last request
  #visible = false;
  #idle = 0;
  #facts = h('p.facts');

  // `own()`: the ids of this page's running requests.
  constructor(own) {
    super();
    this.#parts = [new Rates(), new Ranks(), new BlockMap(), new PrefixTree(),
                   new Sequences(own), new Timeline(own)];
    $('engine-body').append(this.#facts, ...this.#parts.map((part) => part.element));
    $('engine-body').hidden = true;
    document.addEventListener('visibilitychange', () => this.#schedule(0));
  }

  // Whether the panel can be seen, as far as the page decides that.
  set visible(visible) {
    this.#visible = visible;
    this.#schedule(0);
  }

  // Asks again soon: a request begins, or there is a new key.
  wake() {
    this.#idle = 0;
    this.#schedule(0);
  }

  #schedule(wait) {
    clearTimeout(this.#timer);
    if (!this.#visible || document.hidden || this.#asking) return;
    const soonest = this.#asked + BUSY - performance.now();
    this.#timer = setTimeout(() => this.#ask(), Math.max(wait, soonest));
  }

  async #ask() {
    this.#asking = true;
    this.#asked = performance.now();
    let wait = RETRY;
    try {
      const state = await (await call('/debug/state')).json();
      this.#show(state);
      this.#idle = state.engine.running || state.engine.waiting ? 0 : this.#idle + 1;
      wait = this.#idle > IDLE_AFTER ? IDLE : BUSY;
    } catch (error) {
      this.#fail(error);
      // Asks a user without a key only once; the chat asks again when it needs the key.
      if (error.status === 401 || error.status === 404) wait = 10 * RETRY;
    }
    this.#asking = false;
    this.#schedule(this.#asked + wait - performance.now());
  }

  #show(state) {
    $('engine-note').hidden = true;
    $('engine-body').hidden = false;
    const {running, waiting} = state.engine;
    setText($('engine-state'), running || waiting ? 'working' : 'idle');
    $('engine-state').className = `state ${running || waiting ? 'busy' : ''}`;
    this.#showFacts(state);
    for (const part of this.#parts) part.show(state);
    this.dispatchEvent(new CustomEvent('state', {detail: state}));
  }

  #showFacts({model, build}) {
    const text = [model.architecture, `${short(model.parameters)} parameters`,
                  bytes(model.weight_bytes), model.backend, `${number(model.threads)} threads`,
                  `${number(model.max_context)} tokens of context`, build.version].join(' · ');
    if (this.#facts.dataset.text === text) return;
    this.#facts.dataset.text = text;
    this.#facts.replaceChildren(h('b', {}, model.id), h('br'), text);
  }

  #fail(error) {
    const known = error.status !== undefined;
    if (!known) console.error(error);
    $('engine-note').hidden = false;
    setText($('engine-note'), NOTES[error.status] ?? (known ? error.message :
        'The server’s answer is not what this page expects.'));
    setText($('engine-state'), error.status === 0 ? 'offline' : 'not shown');
    $('engine-state').className = 'state off';
    if (error.status === 401) this.dispatchEvent(new Event('key'));
  }
}
