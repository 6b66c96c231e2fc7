// The list of conversations: open, rename, export, delete.
import {confirm} from './dialogs.js';
import {$, download, h} from './dom.js';
import {exported, titleOf} from './store.js';

export class ConversationList {
  #store;
  #chat;
  #open;
  #renaming = '';

  // `open(conversation)` shows one.
  constructor(store, chat, open) {
    this.#store = store;
    this.#chat = chat;
    this.#open = open;
    $('new').addEventListener('click', () => open(store.create()));
    $('export-all').addEventListener('click', async () => {
      const all = store.list().filter(({messages}) => messages.length).map(exported);
      download('tokamak-conversations.json', JSON.stringify(await Promise.all(all), null, 2));
    });
    $('delete-all').addEventListener('click', () => this.#deleteAll());
    store.addEventListener('change', () => this.draw());
    chat.addEventListener('change', () => this.draw());
  }

  draw() {
    if (this.#renaming) return;
    const shown = this.#store.list().filter((conversation) => (
        conversation.messages.length || conversation === this.#chat.conversation));
    const focused = document.activeElement?.closest('#conversations li');
    const focus = focused && {id: focused.dataset.id,
                              at: [...focused.querySelectorAll('button')].indexOf(
                                  document.activeElement)};
    $('conversations').replaceChildren(...shown.map((conversation) => this.#item(conversation)));
    if (focus) {
      const item = $('conversations').querySelector(`[data-id="${CSS.escape(focus.id)}"]`);
      item?.querySelectorAll('button')[focus.at]?.focus();
    }
  }

  #item(conversation) {
    const {id} = conversation;
    const title = titleOf(conversation);
    const current = conversation === this.#chat.conversation;
    const tool = (sign, what, onclick) => h('button.tool', {
      type: 'button', title: what, 'aria-label': `${what}: ${title}`, onclick}, sign);
    const item = h('li', {'data-id': id},
                   h('button.open', {type: 'button', title, 'aria-current': current ? 'page' : null,
                                     onclick: () => this.#open(conversation)}, title));
    item.classList.toggle('current', current);
    item.classList.toggle('running', this.#chat.isRunning(id));
    if (conversation.messages.length) {
      item.append(tool('✎', 'Rename', () => this.#rename(conversation, item)),
                  tool('↓', 'Export', async () => download(
                      `${fileName(title)}.json`,
                      JSON.stringify(await exported(conversation), null, 2))),
                  tool('✕', 'Delete', () => this.#delete(conversation)));
    }
    return item;
  }

  #rename(conversation, item) {
    this.#renaming = conversation.id;
    const field = h('input', {'aria-label': 'Name of the conversation', maxlength: 120});
    field.value = titleOf(conversation);
    const end = (save) => {
      if (!this.#renaming) return;
      this.#renaming = '';
      const title = field.value.trim();
      if (save && title) this.#store.rename(conversation.id, title);
      this.draw();
    };
    field.addEventListener('blur', () => end(true));
    field.addEventListener('keydown', (event) => {
      if (event.isComposing || (event.key !== 'Enter' && event.key !== 'Escape')) return;
      event.stopPropagation();
      end(event.key === 'Enter');
      $('conversations').querySelector(`[data-id="${CSS.escape(conversation.id)}"] button`)?.focus();
    });
    item.replaceChildren(field);
    field.focus();
    field.select();
  }

  async #delete(conversation) {
    if (!await confirm(`Delete “${titleOf(conversation)}”?`, 'Delete')) return;
    this.#chat.stopAll(conversation.id);
    const current = conversation === this.#chat.conversation;
    this.#store.delete(conversation.id);
    if (current) this.#open(this.#store.list()[0] ?? this.#store.create());
  }

  async #deleteAll() {
    if (!await confirm('Delete all conversations of this browser?', 'Delete all')) return;
    for (const {id} of this.#store.list()) {
      this.#chat.stopAll(id);
      this.#store.delete(id);
    }
    this.#open(this.#store.create());
  }
}

function fileName(title) {
  return title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 60) || 'conversation';
}
