// The server's API: keys, errors, streams.

const KEY = 'tokamak.key';

// An error response of the server, or the reason why it could not be reached (status 0).
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;  // seconds
  }
}

function storages() {
  try {
    return [sessionStorage, localStorage];
  } catch {
    return [];
  }
}

let keyInMemory = '';

export function apiKey() {
  for (const storage of storages()) {
    const key = storage.getItem(KEY);
    if (key) return key;
  }
  return keyInMemory;
}

// An empty key removes the stored one.
export function setApiKey(key, remember) {
  keyInMemory = key;
  for (const storage of storages()) storage.removeItem(KEY);
  if (!key) return;
  try {
    (remember ? localStorage : sessionStorage).setItem(KEY, key);
  } catch {
    // No storage: the key is kept until the page closes.
  }
}

// Fetches with the API key. Throws ApiError unless the status is 2xx.
export async function call(path, options = {}) {
  const headers = {...options.headers};
  const key = apiKey();
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, {...options, headers, cache: 'no-store', credentials: 'omit'});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server cannot be reached.');
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => '');
  let message = '';
  try {
    message = JSON.parse(text).error.message;
  } catch {
    message = text.slice(0, 300);
  }
  throw new ApiError(response.status, message || `The server answered ${response.status}.`,
                     Number(response.headers.get('Retry-After')) || 0);
}

// Runs a chat completion and yields its parsed events as they arrive. Ends after [DONE].
export async function* chat(body, signal) {
  const response = await call('/v1/chat/completions', {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({...body, stream: true, return_token_ids: true,
                          stream_options: {include_usage: true}}),
    signal,
  });
  for await (const data of eventsOf(response.body, signal)) {
    if (data === '[DONE]') return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(500, event.error.message);
    yield event;
  }
  throw new ApiError(0, 'The connection ended before the answer was complete.');
}

// Yields the data of a stream's events. Reads the subset of server-sent events that this server
// writes, with any line ends, because a proxy may change them.
async function* eventsOf(stream, signal) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let lines = [];
  for (;;) {
    let chunk;
    try {
      chunk = await reader.read();
    } catch (error) {
      if (signal.aborted) throw new DOMException('stopped', 'AbortError');
      throw new ApiError(0, 'The connection was lost.');
    }
    if (chunk.done) return;
    const parts = (rest + chunk.value).split(/\r?\n/);
    rest = parts.pop();
    for (const line of parts) {
      if (line.startsWith('data:')) {
        lines.push(line.slice(line[5] === ' ' ? 6 : 5));
      } else if (line === '' && lines.length) {
        yield lines.join('\n');
        lines = [];
      }
    }
  }
}
