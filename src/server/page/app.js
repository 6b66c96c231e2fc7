// Assembles the page: events between its parts, keyboard shortcuts, drawers, colours.
import {apiKey, call} from './api.js';
import {Attachments} from './attach.js';
import {Chat} from './chat.js';
import {askForKey, wireDialogs} from './dialogs.js';
import {$, setText} from './dom.js';
import {EnginePanel} from './engine.js';
import {ConversationList} from './list.js';
import {describeSettings, editSettings} from './settings.js';
import {Store, contentOf, titleOf} from './store.js';

const store = new Store();
let model = '';
const chat = new Chat(store, () => model);
const attachments = new Attachments();
const engine = new EnginePanel(() => chat.requestIds());
const list = new ConversationList(store, chat, open);
const roomy = matchMedia('(min-width: 1400px)');  // otherwise the engine panel starts closed
const wide = matchMedia('(min-width: 1200px)');   // otherwise the engine panel is a drawer
const narrow = matchMedia('(max-width: 799px)');  // the list is a drawer too

function open(conversation) {
  saveSystem();
  chat.show(conversation);
  $('input').value = store.draft(conversation);
  fit();
  const drawer = openDrawer();
  showList(false);
  if (matchMedia('(hover: hover)').matches) $('input').focus();
  else if (drawer === 'list') $('toggle-list').focus();
}

// The message box.

function fit() {
  const input = $('input');
  input.style.setProperty('height', 'auto');
  input.style.setProperty('height', `${input.scrollHeight + 2}px`);
}

function submit() {
  const text = $('input').value;
  if (chat.isRunning() || (!text.trim() && attachments.empty)) return;
  store.keepDraft(chat.conversation, '');  // now: sending the first message changes the draft's key
  chat.send(text, attachments.take());
  $('input').value = '';
  fit();
  engine.wake();
}

$('input').addEventListener('input', () => {
  store.keepDraft(chat.conversation, $('input').value);
  fit();
});
$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  submit();
});
$('input').addEventListener('keydown', (event) => {
  if (event.isComposing) return;  // an input method is choosing a character
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    submit();
  } else if (event.key === 'ArrowUp' && $('input').value === '') {
    event.preventDefault();
    chat.editLast();
  }
});
$('stop').addEventListener('click', () => {
  chat.stop();
  $('input').focus();
});
$('show-settings').addEventListener('click', showSettings);

function showSettings() {
  editSettings(chat.conversation.settings, (sampling) => {
    const {system} = chat.conversation.settings;
    keepSettings({...sampling, ...(system && {system})});
  });
}

function keepSettings(settings) {
  chat.conversation.settings = settings;
  store.settings = settings;
  store.save(chat.conversation, {touch: false});
  showConversation();
}

// The system prompt.

function showSystem() {
  const {system = ''} = chat.conversation.settings;
  if ($('system-text').value !== system) $('system-text').value = system;
  setText($('system-short'), system.trim().split('\n')[0] || 'none');
}

// The conversation whose system prompt has changed since it was stored. A key press stores only the
// prompt, with the settings, because a conversation may be long.
let unsaved = null;

function saveSystem() {
  if (unsaved) store.save(unsaved, {touch: false});
  unsaved = null;
}

$('system-text').addEventListener('input', () => {
  unsaved = chat.conversation;
  const {system: _, ...sampling} = unsaved.settings;
  const text = $('system-text').value;
  unsaved.settings = {...sampling, ...(text.trim() && {system: text})};
  store.settings = unsaved.settings;
  showConversation();
});
$('system-text').addEventListener('blur', saveSystem);
addEventListener('pagehide', saveSystem);

function showConversation() {
  const running = chat.isRunning();
  $('stop').hidden = !running;
  $('send').hidden = running;
  setText($('show-settings'), describeSettings(chat.conversation.settings));
  showSystem();
  const title = titleOf(chat.conversation);
  document.title = chat.conversation.messages.length ? `${title} · tokamak` : 'tokamak';
}

chat.addEventListener('change', showConversation);
chat.addEventListener('ended', ({detail: answer}) => {
  engine.wake();
  if (answer.conversation !== chat.conversation) return;
  // Announces an answer once, when it is complete: nobody could listen to single tokens.
  const {state, error} = answer.version;
  setText($('announce'), state === 'error' ? `No answer: ${error}`
      : `${state === 'stopped' ? 'Answer stopped' : 'Answer'}: ${contentOf(answer.message)}`);
});
attachments.addEventListener('refused', ({detail: why}) => showBanner(why));
store.addEventListener('full', () => {
  showBanner('This browser’s storage is full: export or delete conversations to keep new ones.');
});
store.addEventListener('other-tab', ({detail: id}) => {
  if (id !== chat.conversation.id || chat.isRunning()) return;
  chat.show(store.get(id) ?? store.list()[0] ?? store.create());
});

function showBanner(text) {
  $('banner').hidden = !text;
  setText($('banner'), text);
}

// The key.

let asking = false;
async function needKey(text) {
  if (asking) return;
  asking = true;
  const changed = await askForKey(text);
  asking = false;
  if (changed) {
    loadModel();
    engine.wake();
  }
}
chat.addEventListener('key', () => needKey(apiKey() ? 'The server does not accept this key.'
                                                    : 'This server asks for a key.'));
engine.addEventListener('key', () => { $('show-key').hidden = false; });
$('show-key').addEventListener('click', () => needKey('Sent only to this server.'));

async function loadModel() {
  try {
    const models = await (await call('/v1/models')).json();
    model = models.data[0].id;
    attachments.most = models.data[0].images?.max_images ?? 0;
    setText($('model'), model);
    $('model').title = model;
    showBanner('');
  } catch (error) {
    if (error.status === 401) {
      $('show-key').hidden = false;
      needKey(apiKey() ? 'The server does not accept this key.' : 'This server asks for a key.');
    } else {
      showBanner(error.message);
      setTimeout(loadModel, 3000);
    }
  }
}

// Drawers. A drawer that covers the page is a dialog: elements behind it can be neither reached nor
// read.

function openDrawer() {
  const {classList} = document.body;
  if (narrow.matches && classList.contains('show-list')) return 'list';
  return !wide.matches && classList.contains('show-engine') ? 'engine' : '';
}

function showEngine(show) {
  if (show) document.body.classList.remove('show-list');
  document.body.classList.toggle(wide.matches ? 'no-engine' : 'show-engine', wide.matches !== show);
  update();
}

function engineShown() {
  const {classList} = document.body;
  return wide.matches ? !classList.contains('no-engine') : classList.contains('show-engine');
}

function showList(show) {
  if (show) document.body.classList.remove('show-engine');
  document.body.classList.toggle('show-list', show);
  update();
}

function update() {
  const drawer = openDrawer();
  const shown = engineShown();
  engine.visible = shown;
  $('toggle-engine').setAttribute('aria-expanded', shown);
  $('toggle-list').setAttribute('aria-expanded', drawer === 'list');
  $('scrim').hidden = !drawer;
  for (const part of document.querySelectorAll('.skip, .top, #list, #chat, #engine')) {
    const modal = drawer !== '' && part.id === drawer;
    part.inert = drawer !== '' && !modal;
    if (modal) {
      part.setAttribute('role', 'dialog');
      part.setAttribute('aria-modal', 'true');
    } else {
      part.removeAttribute('role');
      part.removeAttribute('aria-modal');
    }
  }
}

$('toggle-engine').addEventListener('click', () => {
  showEngine(!engineShown());
  if (openDrawer() === 'engine') $('close-engine').focus();
});
$('close-engine').addEventListener('click', () => {
  showEngine(false);
  $('toggle-engine').focus();
});
$('toggle-list').addEventListener('click', () => {
  showList(openDrawer() !== 'list');
  if (openDrawer() === 'list') $('new').focus();
});
$('close-list').addEventListener('click', closeDrawers);
$('scrim').addEventListener('click', closeDrawers);
for (const width of [roomy, wide, narrow]) {
  width.addEventListener('change', () => {
    placeEngine();
    update();
  });
}

function placeEngine() {
  document.body.classList.remove('show-engine', 'show-list');
  document.body.classList.toggle('no-engine', !roomy.matches);
}

// Returns whether a drawer was open.
function closeDrawers() {
  const drawer = openDrawer();
  if (!drawer) return false;
  if (drawer === 'list') showList(false);
  else showEngine(false);
  $(`toggle-${drawer}`).focus();
  return true;
}

// Colours.

const THEMES = ['automatic', 'light', 'dark'];

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === 'automatic') delete root.dataset.theme;
  else root.dataset.theme = theme;
  $('theme').setAttribute('aria-label', `Colours: ${theme}`);
  $('theme').title = `Colours: ${theme}`;
  $('theme').firstElementChild.textContent = {automatic: '◐', light: '☀', dark: '☾'}[theme];
  try {
    localStorage.setItem('tokamak.theme', theme);
  } catch {
    // No storage: the choice lasts until the page closes.
  }
}

$('theme').addEventListener('click', () => {
  const now = THEMES.indexOf(document.documentElement.dataset.theme ?? 'automatic');
  setTheme(THEMES[(now + 1) % THEMES.length]);
});

// Keys.

const SHORTCUTS = {
  n: () => open(store.create()),
  r: () => chat.regenerateLast(),
  p: () => {
    $('system').open = true;
    $('system-text').focus();
  },
  s: showSettings,
  e: () => $('toggle-engine').click(),
  l: () => (narrow.matches ? $('toggle-list').click()
      : $('conversations').querySelector('button')?.focus()),
};

document.addEventListener('keydown', (event) => {
  if (document.querySelector('dialog[open]') || event.isComposing) return;
  const writing = event.target.closest('input, textarea');
  if (event.key === 'Escape') {
    if (!closeDrawers()) chat.stop();
  } else if (event.altKey && !event.ctrlKey && !event.metaKey) {
    // Uses the key's position, because Alt may produce another character.
    const shortcut = SHORTCUTS[event.code.startsWith('Key') ? event.code[3].toLowerCase() : ''];
    if (!shortcut) return;
    event.preventDefault();
    shortcut();
  } else if (!writing && event.key === '/') {
    event.preventDefault();
    $('input').focus();
  } else if (!writing && event.key === '?') {
    $('help').showModal();
  }
});
$('show-help').addEventListener('click', () => $('help').showModal());

wireDialogs();
setTheme(document.documentElement.dataset.theme ?? 'automatic');
placeEngine();
open(store.list()[0] ?? store.create());
list.draw();
update();
loadModel();
