// Conversations and settings, kept in this browser (localStorage). One entry per conversation, so
// that two tabs that write different ones do not undo each other's work.
//
// Conversation: {id, title, named, created, updated, settings, messages: [Message]}. Message:
// {role: 'user', content, images} or {role: 'assistant', versions: [Version], at}, where `images`,
// if any, are ids of images.js, and `at` is the version that is shown and that later requests
// contain. Version: {content, reasoning, state: 'done' | 'stopped' | 'length' | 'error' | 'running',
// error, figures}. The reasoning is only shown; later requests do not contain it.

import {forgetImagesOf, imageUrl} from './images.js';

const PREFIX = 'tokamak.conversation.';
const SETTINGS = 'tokamak.settings';
const DRAFT = 'tokamak.draft.';

export class Store extends EventTarget {
  #conversations = new Map();
  #settings = {};

  constructor() {
    super();
    for (const key of keys()) {
      const conversation = parse(read(key));
      if (isConversation(conversation)) this.#conversations.set(conversation.id, mend(conversation));
    }
    this.#settings = parse(read(SETTINGS)) ?? {};
    addEventListener('storage', (event) => this.#onOtherTab(event));
  }

  // Latest first.
  list() {
    return [...this.#conversations.values()].sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.#conversations.get(id);
  }

  // Reuses a conversation without messages.
  create() {
    const empty = this.list().find((conversation) => conversation.messages.length === 0);
    if (empty) return empty;
    const now = Date.now();
    const conversation = {id: crypto.randomUUID?.() ?? `${now}-${Math.random()}`, title: '',
                          named: false, created: now, updated: now,
                          settings: {...this.#settings}, messages: []};
    this.#conversations.set(conversation.id, conversation);
    return conversation;
  }

  // Stores the conversation, unless it has no messages. `touch` makes it the latest.
  save(conversation, {touch = true} = {}) {
    if (!this.#conversations.has(conversation.id)) return;  // deleted meanwhile
    if (touch) conversation.updated = Date.now();
    if (conversation.messages.length) {
      this.#write(PREFIX + conversation.id, JSON.stringify(conversation));
    }
    this.dispatchEvent(new Event('change'));
  }

  rename(id, title) {
    const conversation = this.get(id);
    conversation.title = title;
    conversation.named = true;
    this.save(conversation, {touch: false});
  }

  delete(id) {
    forgetImagesOf(this.get(id)?.messages ?? []);
    this.#conversations.delete(id);
    remove(PREFIX + id);
    remove(DRAFT + id);
    this.dispatchEvent(new Event('change'));
  }

  // Returns the text that was written but not sent.
  draft(conversation) {
    return read(draftKey(conversation)) ?? '';
  }

  keepDraft(conversation, text) {
    if (text) this.#write(draftKey(conversation), text);
    else remove(draftKey(conversation));
  }

  set settings(settings) {
    this.#settings = settings;
    this.#write(SETTINGS, JSON.stringify(settings));
  }

  #write(key, text) {
    try {
      localStorage.setItem(key, text);
    } catch {
      this.dispatchEvent(new Event('full'));
    }
  }

  #onOtherTab(event) {
    if (!event.key?.startsWith(PREFIX)) return;
    const conversation = parse(event.newValue);
    const id = event.key.slice(PREFIX.length);
    if (event.newValue === null) this.#conversations.delete(id);
    else if (isConversation(conversation)) this.#conversations.set(id, conversation);
    this.dispatchEvent(new CustomEvent('other-tab', {detail: id}));
    this.dispatchEvent(new Event('change'));
  }
}

// A message as the API takes it; null for an answer that failed.
export async function forApi(message) {
  const text = contentOf(message);
  const urls = await Promise.all((message.images ?? []).map(imageUrl));
  const parts = urls.filter(Boolean).map((url) => ({type: 'image_url', image_url: {url}}));
  if (!parts.length) return text ? {role: message.role, content: text} : null;
  if (text) parts.push({type: 'text', text});
  return {role: message.role, content: parts};
}

// The text that a message contributes to the conversation.
export function contentOf(message) {
  return message.role === 'user' ? message.content : message.versions[message.at].content;
}

export function titleOf(conversation) {
  return conversation.title || 'New conversation';
}

// A form that other programs can read: the messages as the API takes them, and the settings.
export async function exported(conversation) {
  const {title, created, settings, messages} = conversation;
  const system = settings.system ? [{role: 'system', content: settings.system}] : [];
  return {title: title || titleOf(conversation), created: new Date(created).toISOString(), settings,
          messages: [...system, ...(await Promise.all(messages.map(forApi))).filter(Boolean)]};
}

function keys() {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  } catch {
    return [];
  }
}

// A conversation without messages is not stored, so after a reload another one takes its place.
function draftKey({id, messages}) {
  return DRAFT + (messages.length ? id : 'new');
}

function remove(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    // No storage: nothing was kept.
  }
}

function read(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isConversation(value) {
  return value && typeof value.id === 'string' && typeof value.settings === 'object' &&
         Array.isArray(value.messages) && value.messages.every((message) =>
             message.role === 'user' ? typeof message.content === 'string'
                                     : message.versions?.[message.at] !== undefined);
}

// An answer that was under way when the page closed has ended.
function mend(conversation) {
  for (const message of conversation.messages) {
    for (const version of message.versions ?? []) {
      if (version.state === 'running') version.state = 'stopped';
    }
  }
  return conversation;
}
