// The view of transactions: what waits, the timeline or its table, and what has happened.

import { el, setText, sync } from "/dom.js";
import { lanesSince, summary } from "/lanes.js";
import { pins } from "/pins.js";
import { missing, now, section } from "/rows.js";
import { table } from "/tables.js";
import { patterns, timeline } from "/timeline.js";
import { clock, counted, number, span } from "/words.js";

const WINDOWS = [["1 min", 60_000], ["5 min", 300_000], ["15 min", 900_000], ["1 h", 3_600_000]];
const COLUMNS = [["transactional id"], ["state"], ["open for", true], ["partitions", true], ["client"], ["producer"], ["in this time"]];
const PAGE = 60;
const EVENTS_SHOWN = 30;
const ROUTINE = new Set(["appeared", "began", "deciding", "committed", "renewed"]);
const SIGNS = { committed: "✓", aborted: "✕", "timed out": "◷", fenced: "⚑", resumed: "⚑", renewed: "⚑", deciding: "◆", began: "▸" };

const chosen = { windowMs: 300_000, asTable: false, showsAll: false, filter: "", heldMs: null, pages: 1 };

function radios(changed) {
  return el(
    "fieldset",
    { class: "choices" },
    el("legend", {}, "Time"),
    WINDOWS.map(([name, ms]) => {
      const input = el("input", { type: "radio", name: "window", value: ms, checked: ms === chosen.windowMs });
      input.addEventListener("change", () => {
        chosen.windowMs = ms;
        changed();
      });
      return el("label", {}, input, ` ${name}`);
    }),
  );
}

function toggle(text, isOn, changed) {
  const button = el("button", { type: "button", "aria-pressed": String(isOn) }, text);
  button.addEventListener("click", () => {
    const isPressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isPressed));
    changed(isPressed);
  });
  return button;
}

function controls(changed) {
  const filter = el("input", { type: "search", id: "filter", autocomplete: "off", spellcheck: "false", value: chosen.filter });
  filter.addEventListener("input", () => {
    chosen.filter = filter.value.toLowerCase();
    changed();
  });
  const set = (name) => (isOn) => {
    chosen[name] = isOn;
    changed();
  };
  return el(
    "div",
    { class: "controls" },
    radios(changed),
    el("label", { class: "search", for: "filter" }, "Find ", filter),
    toggle("Table", chosen.asTable, set("asTable")),
    toggle("All ids", chosen.showsAll, set("showsAll")),
    toggle("Hold", chosen.heldMs !== null, (isOn) => {
      chosen.heldMs = isOn ? now() : null;
      changed();
    }),
  );
}

function legend() {
  const item = (className, text) => el("li", {}, el("span", { class: `key ${className}`, "aria-hidden": "true" }), text);
  return el(
    "ul",
    { class: "legend dim" },
    item("key-open", "open"),
    item("key-committed", "committed"),
    item("key-aborted", "aborted ✕"),
    item("key-late", "timed out ◷"),
    item("key-ended", "ended between two looks"),
    item("key-markers", "decided, markers to be written"),
    item("key-fence", "fence"),
  );
}

function cellsOf(lane, now) {
  const row = lane.row;
  const last = lane.events.at(-1);
  return [
    lane.name,
    row ? row.state : "gone",
    row && row.is_open ? span(now - row.started_ms) : "",
    row && row.partition_count ? number(row.partition_count) : "",
    row ? (row.client ?? "") : "",
    row ? `${row.producer_id} epoch ${row.producer_epoch}` : "",
    [summary(lane), last && !ROUTINE.has(last.kind) ? `${clock(last.at_ms)} ${last.text}` : ""].filter(Boolean).join("; "),
  ];
}

// The newest events first. Of routine events, only the last one of each id.
function newest() {
  const shown = [];
  const seen = new Set();
  for (const [key, event] of [...section("event")].reverse()) {
    if (shown.length >= EVENTS_SHOWN) break;
    if (ROUTINE.has(event.kind)) {
      if (seen.has(event.id)) continue;
      seen.add(event.id);
    }
    shown.push({ key, ...event });
  }
  return shown;
}

function happened() {
  const list = el("ol", { class: "happened" });
  const element = el("section", { class: "news", "aria-labelledby": "happened-title" }, el("h2", { id: "happened-title" }, "What happened"), list);
  const nameOf = (id) => section("lane").get(id)?.name ?? JSON.stringify(id).slice(1, -1);
  return {
    element,
    draw() {
      sync(
        list,
        newest(),
        (event) => event.key,
        (event) =>
          el(
            "li",
            { class: `kind-${event.kind.replace(" ", "-")}` },
            el("time", { class: "dim" }, clock(event.at_ms)),
            el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[event.kind] ?? "·"),
            el("span", {}, el("strong", {}, nameOf(event.id)), ` ${event.text}`),
          ),
        () => {},
      );
    },
  };
}

function figures() {
  const element = el("p", { class: "figures" });
  return {
    element,
    draw(now) {
      const open = [...section("lane").values()].filter((row) => row.is_open);
      const waiting = [...section("pin").values()];
      const records = waiting.reduce((sum, row) => sum + row.high_watermark - row.last_stable_offset, 0);
      const oldest = Math.min(...open.map((row) => row.started_ms ?? now));
      const count = section("count").get("transactions") ?? { all: 0, open: 0 };
      const said = [`${number(count.open)} open of ${counted(count.all, "transactional id")}`];
      if (open.length) said.push(`the oldest for ${span(now - oldest)}`);
      said.push(waiting.length ? `${counted(records, "record")} of ${counted(waiting.length, "partition")} wait` : "no reader waits");
      setText(element, said.join(" · "));
    },
  };
}

export function transactions() {
  let last = now();
  const parts = { figures: figures(), pins: pins(), timeline: timeline(), table: table("Transactions", COLUMNS), happened: happened() };
  const more = el("button", { type: "button", class: "more", hidden: true });
  const lack = el("p", { class: "lack" });
  const nothing = el("p", { class: "dim" });
  const draw = (now) => {
    last = now;
    const until = chosen.heldMs ?? now;
    const from = until - chosen.windowMs;
    parts.figures.draw(now);
    parts.pins.draw(now);
    setText(lack, missing("transactions") ?? "");
    const lanes = lanesSince(from, until, chosen.filter, chosen.showsAll);
    const shown = lanes.slice(0, chosen.pages * PAGE);
    parts.timeline.element.hidden = chosen.asTable || !shown.length;
    parts.table.element.hidden = !chosen.asTable || !shown.length;
    if (chosen.asTable) parts.table.draw(shown.map((lane) => ({ key: lane.id, cells: cellsOf(lane, until) })));
    else parts.timeline.draw(shown, from, until);
    setText(nothing, lanes.length ? "" : "No transaction in this time.");
    more.hidden = shown.length === lanes.length;
    setText(more, `Show more of ${counted(lanes.length, "lane")}`);
    parts.happened.draw();
  };
  const again = () => draw(last);
  more.addEventListener("click", () => {
    chosen.pages += 1;
    again();
  });
  const element = el(
    "div",
    { class: "view view-transactions" },
    patterns(),
    parts.figures.element,
    parts.pins.element,
    el("section", { class: "over-time", "aria-labelledby": "lanes-title" }, el("h2", { id: "lanes-title" }, "Transactions"), controls(again), legend(), lack, nothing, parts.timeline.element, parts.table.element, more),
    parts.happened.element,
  );
  return { element, draw };
}
