// The rows that the server sends, and the state of the connection to it.

const sections = new Map();
let offset = 0;

export const connection = { isOpen: false, isOver: false, since: Date.now(), hasRows: false };

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
  connection.hasRows = true;
}

// Receive rows from now on, and call `changed` after each message.
export function receive(changed) {
  const source = new EventSource("/events");
  source.onopen = () => {
    Object.assign(connection, { isOpen: true, since: Date.now() });
    changed();
  };
  source.onerror = () => {
    if (connection.isOpen) connection.since = Date.now();
    connection.isOpen = false;
    connection.isOver = source.readyState === EventSource.CLOSED;
    changed();
  };
  source.onmessage = (event) => {
    take(JSON.parse(event.data));
    changed();
  };
}

// What a section lacks, as a sentence; null if nothing.
export function missing(name) {
  const status = section("status").get(name);
  return status && !status.is_well && status.is_refusal ? status.sentence : null;
}
