// One message of a conversation, on the page.
import {colourCode, copyText} from './code.js';
import {count, h, number, seconds} from './dom.js';
import {imageUrl} from './images.js';
import {MarkdownView} from './markdown.js';

// `actions`: edit(message, text), regenerate(message), show(message, version).
export class MessageView {
  #actions;
  #body;
  #foot;
  #thoughts = document.createTextNode('');
  #reasoning = h('details.reasoning', {hidden: true}, h('summary', {}, 'Reasoning'),
                 h('div', {}, this.#thoughts));
  #markdown = null;
  #drawn = 0;        // time of the last drawing
  #drawing = 0;      // ms that the last drawing took
  #timer = 0;
  #editing = false;

  constructor(message, actions) {
    this.message = message;
    this.#actions = actions;
    const user = message.role === 'user';
    this.#body = h(user ? 'div.body' : 'div.body.markdown');
    this.#foot = h('div.foot');
    this.element = h(`article.message.${message.role}`, {'aria-label': user ? 'You' : 'Answer'},
                     h('p.who', {'aria-hidden': true}, user ? 'You' : 'Answer'),
                     !user && this.#reasoning, this.#body, this.#foot);
    this.draw();
  }

  get editing() {
    return this.#editing;
  }

  // Draws the whole message as it is now.
  draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.element.querySelector('.failed')?.remove();
    if (this.message.role === 'user') {
      this.#body.textContent = this.message.content;
      this.#drawImages();
      this.#foot.replaceChildren(this.#button('Edit', () => this.edit()),
                                 this.#copyButton(() => this.message.content));
      return;
    }
    const version = this.#version();
    this.#thoughts.data = '';
    this.#body.replaceChildren();
    this.#markdown = new MarkdownView(this.#body);
    if (version.state === 'running') this.#drawRunning();
    else this.#drawEnded();
  }

  #drawImages() {
    const images = this.message.images ?? [];
    if (!images.length) return;
    const views = images.map((_, i) => h('img', {alt: `Image ${i + 1}`}));
    images.forEach(async (id, i) => {
      const url = await imageUrl(id);
      if (url) views[i].src = url;
      else views[i].replaceWith(h('span.note', {}, 'An image that is gone'));
    });
    this.#body.prepend(h('div.images', {}, views));
  }

  // More text has come. Draws at most every 40 ms, and never for more than a quarter of the time.
  grow() {
    if (this.#timer || this.#editing) return;
    const wait = Math.max(40, 3 * this.#drawing) - (performance.now() - this.#drawn);
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (this.#version().state === 'running') this.#drawRunning();
    }, Math.max(0, wait));
  }

  end() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#drawEnded();
  }

  edit() {
    if (this.#editing || this.#version()?.state === 'running') return;
    this.#editing = true;
    const user = this.message.role === 'user';
    const text = user ? this.message.content : this.#version().content;
    const field = h('textarea', {'aria-label': 'Edit the message', rows: 4});
    field.value = text;
    const close = () => {
      this.#editing = false;
      this.draw();
      this.#foot.querySelector('button')?.focus();
    };
    const save = () => {
      this.#editing = false;
      this.#actions.edit(this.message, field.value);
    };
    field.addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      if (event.key === 'Escape') {
        event.stopPropagation();
        close();
      } else if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        save();
      }
    });
    this.#body.replaceChildren(field, h('div.edit-row', {},
        h('button.send', {type: 'button', onclick: save}, user ? 'Send' : 'Save'),
        h('button.quiet', {type: 'button', onclick: close}, 'Cancel')));
    this.#foot.replaceChildren();
    field.style.setProperty('height', `${Math.min(field.scrollHeight + 4, innerHeight * 0.6)}px`);
    field.focus();
  }

  #version() {
    return this.message.versions?.[this.message.at];
  }

  #drawRunning() {
    const begun = performance.now();
    const {content} = this.#version();
    this.#drawReasoning();
    if (content) {
      this.#markdown.update(content);
    } else if (!this.#body.firstChild) {
      this.#body.append(h('span.pending', {role: 'img', 'aria-label': 'Waiting for the answer'}));
    }
    if (content) this.#body.querySelector(':scope > .pending')?.remove();
    this.#drawn = performance.now();
    this.#drawing = this.#drawn - begun;
  }

  #drawEnded() {
    const version = this.#version();
    this.#body.querySelector(':scope > .pending')?.remove();
    this.#drawReasoning();
    this.#markdown.finish(version.content);
    colourCode(this.#body);
    this.#foot.replaceChildren();
    this.element.querySelector('.failed')?.remove();
    if (version.state === 'error') {
      this.#foot.before(h('p.failed', {role: 'alert'}, version.error));
    }
    this.#foot.append(...this.#versions(), this.#button('Again', () =>
        this.#actions.regenerate(this.message), 'Another answer'));
    if (version.content) {
      this.#foot.append(this.#button('Edit', () => this.edit()),
                        this.#copyButton(() => version.content));
    }
    const figures = figuresOf(version);
    if (figures) this.#foot.append(h('span.figures', {}, figures));
  }

  // Shows text literally. Existing text stays, with a selection in it.
  #drawReasoning() {
    const {reasoning = ''} = this.#version();
    this.#reasoning.hidden = !reasoning;
    this.#thoughts.appendData(reasoning.slice(this.#thoughts.length));
  }

  // ‹ 2/3 ›
  #versions() {
    const {versions, at} = this.message;
    if (versions.length < 2) return [];
    const go = (label, sign, to) => {
      const button = this.#button(sign, () => this.#actions.show(this.message, to), label);
      button.disabled = to < 0 || to >= versions.length;
      return button;
    };
    return [go('Previous answer', '‹', at - 1),
            h('span.figures', {}, `${at + 1}/${versions.length}`),
            go('Next answer', '›', at + 1)];
  }

  #button(text, onclick, label = null) {
    return h('button', {type: 'button', onclick, 'aria-label': label, title: label}, text);
  }

  #copyButton(text) {
    const button = this.#button('Copy', async () => {
      button.textContent = await copyText(text()) ? 'Copied' : 'Not copied';
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
    return button;
  }
}

function figuresOf({state, figures}) {
  const parts = [];
  if (state === 'stopped') parts.push('stopped');
  if (state === 'length') parts.push('cut at max_tokens');
  if (figures?.tokens) {
    parts.push(count(figures.tokens, 'token'));
    if (figures.seconds > 0 && figures.tokens > 1) {
      parts.push(`${number((figures.tokens - 1) / figures.seconds)} tokens/s`);
    }
  }
  if (figures?.first) parts.push(`first token after ${seconds(figures.first)}`);
  if (figures?.cached) parts.push(`${number(figures.cached)} of ${figures.prompt} cached`);
  if (figures?.seed !== undefined) parts.push(`seed ${figures.seed}`);
  return parts.join(' · ');
}
