// The images that the next message will have: chosen, pasted or dropped.
import {$, h} from './dom.js';
import {keepImage, readImage} from './images.js';

// Events: 'refused' (detail: why).
export class Attachments extends EventTarget {
  #urls = [];
  #most = 0;  // images of a conversation; 0: the model takes none

  constructor() {
    super();
    $('add-image').addEventListener('click', () => $('image-file').click());
    $('image-file').addEventListener('change', () => {
      this.#add($('image-file').files);
      $('image-file').value = '';
    });
    $('input').addEventListener('paste', (event) => {
      if (!this.#hasFiles(event.clipboardData)) return;
      event.preventDefault();
      this.#add(event.clipboardData.files);
    });
    for (const name of ['dragover', 'drop']) {
      $('chat').addEventListener(name, (event) => {
        if (!this.#hasFiles(event.dataTransfer)) return;
        event.preventDefault();  // the browser would open the file
        if (name === 'drop') this.#add(event.dataTransfer.files);
      });
    }
  }

  set most(most) {
    this.#most = most;
    $('add-image').hidden = !most;
  }

  get empty() {
    return this.#urls.length === 0;
  }

  // Returns the ids of the images, which are gone from here.
  take() {
    const ids = this.#urls.map(keepImage);
    this.#urls = [];
    this.#draw();
    return ids;
  }

  #hasFiles(transfer) {
    return [...transfer?.types ?? []].includes('Files');
  }

  async #add(files) {
    if (!this.#most) return this.#refuse('This model takes no images.');
    for (const file of [...files]) {
      if (this.#urls.length >= this.#most) {
        return this.#refuse(`A message may have ${this.#most} images.`);
      }
      try {
        this.#urls.push(await readImage(file));
      } catch {
        this.#refuse(`“${file.name}” is not an image that this browser can read.`);
      }
      this.#draw();
    }
    $('input').focus();
  }

  #refuse(why) {
    this.dispatchEvent(new CustomEvent('refused', {detail: why}));
  }

  #draw() {
    $('attached').hidden = this.empty;
    $('attached').replaceChildren(...this.#urls.map((url, i) => h(
        'span.thumbnail', {}, h('img', {src: url, alt: `Image ${i + 1}`}),
        h('button.icon', {type: 'button', 'aria-label': `Remove image ${i + 1}`, onclick: () => {
          this.#urls.splice(i, 1);
          this.#draw();
          $('input').focus();
        }}, '✕'))));
  }
}
