// The rows that the server sends, and the state of the connection to it.

const AGAIN_MS = 5000;

const sections = new Map();
let offset = 0;

// `since` is when it was lost; null until the first answer.
export const connection = { isOpen: false, isFull: false, since: null };

// The rows of a section: a Map of keys and values.
export function section(name) {
  if (!sections.has(name)) sections.set(name, new Map());
  return sections.get(name);
}

// The time by the server's clock.
export const now = () => Date.now() + offset;

function take(message) {
  offset = message.now_ms - Date.now();
  if (message.is_whole) for (const rows of sections.values()) rows.clear();
  for (const [name, key, value] of message.rows) {
    if (value === null) section(name).delete(key);
    else section(name).set(key, value);
  }
}

// Receive rows from now on, and call `changed` after each message. The browser asks again by itself
// when it has lost the connection, but not after an answer that is no stream, as that of a proxy.
export function receive(changed) {
  const source = new EventSource("/events");
  let isRefused = false;
  source.onerror = () => {
    if (connection.isOpen) connection.since = null;
    connection.since ??= Date.now();
    Object.assign(connection, { isOpen: false, isFull: isRefused });
    isRefused = false;
    if (source.readyState === EventSource.CLOSED) setTimeout(receive, AGAIN_MS, changed);
    changed();
  };
  source.addEventListener("full", () => {
    isRefused = true;
  });
  source.onmessage = (event) => {
    Object.assign(connection, { isOpen: true, isFull: false });
    take(JSON.parse(event.data));
    changed();
  };
}

// What a section lacks, as a sentence; null if nothing.
export function missing(name) {
  const status = section("status").get(name);
  return status && !status.is_well && status.is_refusal ? status.sentence : null;
}
