// One answer while it is being generated. It goes on when another conversation is shown.
import {ApiError, chat} from './api.js';
import {forApi} from './store.js';

const SAVE_EVERY = 1000;  // ms

// Events: 'update' (more text), 'end'. `requestId` is the server's name for it, once known.
export class Answer extends EventTarget {
  #abort = new AbortController();
  #store;
  #model;

  constructor(store, conversation, message, model) {
    super();
    this.#store = store;
    this.#model = model;
    this.conversation = conversation;
    this.message = message;
    this.version = message.versions[message.at];
    this.requestId = '';
  }

  stop() {
    this.#abort.abort();
  }

  async run() {
    const {version} = this;
    const started = performance.now();
    let first = 0;
    let saved = started;
    const figures = version.figures = {};
    try {
      for await (const event of chat(await this.#body(), this.#abort.signal)) {
        this.requestId ||= event.id ?? '';
        if (event.seed !== undefined) figures.seed = event.seed;
        if (event.usage) {
          figures.prompt = event.usage.prompt_tokens;
          figures.tokens = event.usage.completion_tokens;
          figures.cached = event.usage.prompt_tokens_details?.cached_tokens ?? 0;
        }
        const choice = event.choices?.[0];
        // The usage comes last, and does not come if the answer is stopped.
        if (choice?.token_ids) figures.tokens = (figures.tokens ?? 0) + choice.token_ids.length;
        if (choice?.finish_reason === 'length') version.state = 'length';
        const {content, reasoning_content: reasoning} = choice?.delta ?? {};
        if (!content && !reasoning) continue;
        first ||= performance.now();
        version.content += content ?? '';
        version.reasoning += reasoning ?? '';
        this.dispatchEvent(new Event('update'));
        if (performance.now() - saved > SAVE_EVERY) {
          saved = performance.now();
          this.#store.save(this.conversation, {touch: false});
        }
      }
      if (version.state === 'running') version.state = 'done';
    } catch (error) {
      this.#fail(error);
    }
    if (first) {
      figures.first = (first - started) / 1000;
      figures.seconds = (performance.now() - first) / 1000;
    }
    this.#store.save(this.conversation);
    this.dispatchEvent(new Event('end'));
  }

  #fail(error) {
    const {version} = this;
    if (error.name === 'AbortError') {
      version.state = 'stopped';
      return;
    }
    version.state = 'error';
    version.error = error.message;
    this.needsKey = error instanceof ApiError && error.status === 401;
    if (!(error instanceof ApiError)) console.error(error);
  }

  async #body() {
    const {messages, settings} = this.conversation;
    const {system, ...sampling} = settings;
    const before = [];
    for (const message of messages.slice(0, messages.indexOf(this.message))) {
      const next = await forApi(message);
      if (!next) continue;  // an answer that failed
      const last = before.at(-1);
      // Templates require that roles alternate.
      if (last?.role === next.role) last.content = joined(last.content, next.content);
      else before.push(next);
    }
    if (system) before.unshift({role: 'system', content: system});
    const model = this.#model();
    return {...(model && {model}), messages: before, ...sampling};
  }
}

// Contents are texts or lists of parts.
function joined(a, b) {
  if (typeof a === 'string' && typeof b === 'string') return `${a}\n\n${b}`;
  const parts = (content) => (
      typeof content === 'string' ? [{type: 'text', text: content}] : content);
  return [...parts(a), ...parts(b)];
}
