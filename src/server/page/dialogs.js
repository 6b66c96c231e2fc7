// What all dialogs have in common, and those for the API key and for confirmation.
import {apiKey, setApiKey} from './api.js';
import {$} from './dom.js';

export function wireDialogs() {
  for (const dialog of document.querySelectorAll('dialog')) {
    for (const button of dialog.querySelectorAll('[data-close]')) {
      button.addEventListener('click', () => dialog.close());
    }
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog) dialog.close();  // a click beside the dialog
    });
  }
}

// Resolves to whether there is a new key.
export function askForKey(text) {
  const form = $('key-form');
  $('key-text').textContent = text;
  form.elements.key.value = '';
  $('key-forget').hidden = !apiKey();
  if (!$('key').open) $('key').showModal();
  form.elements.key.focus();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      setApiKey(form.elements.key.value.trim(), form.elements.remember.checked);
      $('key').close();
      resolve(true);
    };
    $('key-forget').onclick = () => {
      setApiKey('', false);
      $('key').close();
      resolve(true);
    };
    $('key').onclose = () => {
      form.elements.key.value = '';
      resolve(false);
    };
  });
}

export function confirm(question, yes) {
  $('confirm-text').textContent = question;
  $('confirm-yes').textContent = yes;
  $('confirm').showModal();
  return new Promise((resolve) => {
    $('confirm-form').onsubmit = (event) => {
      event.preventDefault();
      resolve(true);
      $('confirm').close();
    };
    $('confirm').onclose = () => resolve(false);
  });
}
