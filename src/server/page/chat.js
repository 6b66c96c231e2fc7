// The conversation that is shown, and the answers being generated in all conversations.
import {Answer} from './answer.js';
import {$, h} from './dom.js';
import {forgetImagesOf} from './images.js';
import {MessageView} from './message.js';

const EXAMPLES = [
  'Explain what a KV cache is, to someone who knows how to program.',
  'Write a Python function that checks whether a word is a palindrome, with tests.',
  'What are three good questions to ask in a code review?',
  'Tell me a short story about a lighthouse, in two paragraphs.',
];
const NEAR_END = 48;  // px from the end that still count as being there

// Events: 'change' (another conversation is shown, or an answer begins or ends), 'key' (the server
// asks for one), 'ended' (detail: the answer).
export class Chat extends EventTarget {
  #store;
  #model;
  #conversation;
  #views = new Map();    // message → MessageView
  #answers = new Map();  // conversation id → Answer
  #follow = true;        // keep the end in view
  #scroll = $('scroll');
  #list = $('messages');

  constructor(store, model) {
    super();
    this.#store = store;
    this.#model = model;
    this.#scroll.addEventListener('scroll', () => this.#onScroll(), {passive: true});
    new ResizeObserver(() => this.#toEndIfFollowing()).observe(this.#list);
    $('to-end').addEventListener('click', () => {
      this.#follow = true;
      this.#toEndIfFollowing();
      this.#onScroll();
    });
  }

  get conversation() {
    return this.#conversation;
  }

  isRunning(id = this.#conversation.id) {
    return this.#answers.has(id);
  }

  // The request ids of this page's answers, as far as they are known.
  *requestIds() {
    for (const answer of this.#answers.values()) if (answer.requestId) yield answer.requestId;
  }

  show(conversation) {
    this.#conversation = conversation;
    this.#follow = true;
    this.redraw();
    this.dispatchEvent(new Event('change'));
  }

  redraw() {
    const {messages} = this.#conversation;
    const views = new Map();
    for (const message of messages) {
      views.set(message, this.#views.get(message) ?? new MessageView(message, this.#actions));
    }
    this.#views = views;
    if (messages.length) {
      const elements = [...views.values()].map((view) => view.element);
      elements.forEach((element, i) => {
        if (this.#list.children[i] !== element) {
          this.#list.insertBefore(element, this.#list.children[i] ?? null);
        }
      });
      while (this.#list.children.length > elements.length) this.#list.lastChild.remove();
    } else {
      this.#list.replaceChildren(this.#welcome());
    }
    this.#toEndIfFollowing();
    this.#onScroll();
  }

  // `images`: ids.
  send(text, images = []) {
    const conversation = this.#conversation;
    conversation.messages.push({role: 'user', content: text, ...(images.length && {images})});
    if (!conversation.named) conversation.title ||= titleFrom(text) || 'Image';
    this.#answer();
    return true;
  }

  stop() {
    this.#answers.get(this.#conversation.id)?.stop();
  }

  stopAll(id) {
    this.#answers.get(id)?.stop();
  }

  regenerateLast() {
    const last = this.#conversation.messages.at(-1);
    if (last?.role === 'assistant') this.#actions.regenerate(last);
    else if (last) this.#answer();
  }

  editLast() {
    const own = this.#conversation.messages.findLast((message) => message.role === 'user');
    if (own && !this.isRunning()) this.#views.get(own).edit();
  }

  #actions = {
    // Editing a user's message starts the conversation anew from there; editing an answer replaces
    // its text.
    edit: (message, text) => {
      const {messages} = this.#conversation;
      if (message.role === 'assistant') {
        message.versions[message.at].content = text;
        this.#store.save(this.#conversation);
        this.#views.get(message).draw();
        return;
      }
      const empty = !text.trim() && !message.images;
      if (empty || this.isRunning()) return this.#views.get(message).draw();
      $('input').focus();
      message.content = text;
      forgetImagesOf(messages.splice(messages.indexOf(message) + 1));
      this.#views.get(message).draw();
      this.#answer();
    },
    regenerate: (message) => {
      if (this.isRunning()) return;
      const {messages} = this.#conversation;
      forgetImagesOf(messages.splice(messages.indexOf(message) + 1));
      this.#answer(message);
    },
    show: (message, at) => {
      if (this.isRunning()) return;
      message.at = at;
      this.#store.save(this.#conversation, {touch: false});
      this.#views.get(message).draw();
    },
  };

  // Another version of `message`, or a new one at the end.
  #answer(message = null) {
    const conversation = this.#conversation;
    const version = {content: '', reasoning: '', state: 'running', error: '', figures: {}};
    if (message) {
      // Drops versions that failed before they had any text.
      message.versions = message.versions.filter(({content, reasoning}) => content || reasoning);
      message.at = message.versions.push(version) - 1;
      this.#views.get(message)?.draw();
    } else {
      message = {role: 'assistant', versions: [version], at: 0};
      conversation.messages.push(message);
    }
    const answer = new Answer(this.#store, conversation, message, this.#model);
    this.#answers.set(conversation.id, answer);
    answer.addEventListener('update', () => this.#views.get(message)?.grow());
    answer.addEventListener('end', () => {
      this.#answers.delete(conversation.id);
      this.#views.get(message)?.end();
      this.dispatchEvent(new Event('change'));
      this.dispatchEvent(new CustomEvent('ended', {detail: answer}));
      if (answer.needsKey) this.dispatchEvent(new Event('key'));
    });
    this.#store.save(conversation);
    this.#follow = true;
    this.redraw();
    this.dispatchEvent(new Event('change'));
    answer.run();
  }

  #welcome() {
    const send = (text) => () => !this.isRunning() && this.send(text);
    return h('div.welcome', {},
             h('h2', {}, 'What would you like to ask?'),
             h('p', {}, 'The model runs on this server; nothing you write leaves it. Watch the ',
               'engine at work while it answers.'),
             h('ul', {}, EXAMPLES.map((text) => (
                 h('li', {}, h('button', {type: 'button', onclick: send(text)}, text))))));
  }

  #onScroll() {
    const {scrollHeight, scrollTop, clientHeight} = this.#scroll;
    this.#follow = scrollHeight - scrollTop - clientHeight < NEAR_END;
    $('to-end').hidden = this.#follow;
  }

  // Does not scroll if the user has scrolled up or selects text.
  #toEndIfFollowing() {
    const selection = getSelection();
    const selecting = !selection.isCollapsed && this.#list.contains(selection.anchorNode);
    if (this.#follow && !selecting) this.#scroll.scrollTop = this.#scroll.scrollHeight;
  }
}

function titleFrom(text) {
  const line = text.trim().split('\n')[0];
  return line.length > 60 ? `${line.slice(0, 58).trimEnd()}…` : line;
}
