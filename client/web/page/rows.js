// The rows that the server sends, and the state of the connection to it.

const AGAIN_MS = 5000;
// The server sends a message every 15 seconds, with rows or without. After this time without one the
// connection is lost: its process stands still, or the network is gone. The first message is waited
// for without this limit, as it has all rows, and a line may be slow.
const SILENT_MS = 40_000;

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
  let heard = 0;
  const lose = (since) => {
    if (connection.isOpen) connection.since = null;
    connection.since ??= since;
    Object.assign(connection, { isOpen: false, isFull: isRefused });
    isRefused = false;
    if (source.readyState === EventSource.CLOSED) {
      clearInterval(watch);
      setTimeout(receive, AGAIN_MS, changed);
    }
    changed();
  };
  const watch = setInterval(() => {
    if (!connection.isOpen || Date.now() - heard < SILENT_MS) return;
    source.close();
    lose(heard);
  }, AGAIN_MS);
  source.onerror = () => lose(Date.now());
  source.addEventListener("full", () => {
    isRefused = true;
  });
  source.onmessage = (event) => {
    heard = Date.now();
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
