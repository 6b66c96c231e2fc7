// The images of messages: read from files, and kept in this browser. They are in IndexedDB, because
// localStorage has room for a few megabytes only.

const KEPT_TYPES = ['image/jpeg', 'image/png', 'image/webp', 'image/gif'];  // the server reads these
const LARGEST_FILE = 1 << 20;  // bytes; larger ones are scaled
const LONGEST_SIDE = 2048;     // px of a scaled image

const loaded = new Map();  // id → data URL, or a promise of it while it is being written

// Returns a data URL that the server can read. Throws if the browser cannot read the file.
export async function readImage(file) {
  if (KEPT_TYPES.includes(file.type) && file.size <= LARGEST_FILE) return dataUrl(file);
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext('2d');
  context.fillStyle = '#fff';  // JPEG has no transparency
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/jpeg', 0.92);
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

// Returns the image's id. Without a database it lasts until the page closes.
export function keepImage(url) {
  const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  loaded.set(id, use('readwrite', (images) => images.put(url, id)).then(() => url));
  return id;
}

// Returns the data URL, once it is kept: a page that closes after its message was sent still has
// it. Returns undefined if the image is gone.
export async function imageUrl(id) {
  if (!loaded.has(id)) {
    const url = await use('readonly', (images) => images.get(id));
    if (url) loaded.set(id, url);
  }
  return loaded.get(id);
}

// Call it when the messages are gone.
export function forgetImagesOf(messages) {
  for (const id of messages.flatMap(({images = []}) => images)) {
    loaded.delete(id);
    use('readwrite', (images) => images.delete(id));
  }
}

let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open('tokamak', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('images');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function use(mode, action) {
  try {
    const transaction = (await database()).transaction('images', mode);
    const request = action(transaction.objectStore('images'));
    return await new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    });
  } catch {
    return undefined;  // no storage, or it is full
  }
}
