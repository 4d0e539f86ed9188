// Transactions over time: a lane for each transactional id.
//
// What a shape means does not hang on its colour. Committed is solid, open is an outline that has
// no end, aborted is hatched with a cross, timed out hatched with a clock, a fence is a flag.

import { el, setText, svg, sync } from "/dom.js";
import { section } from "/rows.js";
import { summary } from "/lanes.js";
import { clock, counted, fate, span } from "/words.js";

const HEIGHT = 26;
const TOP = 6;
const THICK = 14;
const NARROW = 3;
const FENCES = new Set(["fenced", "timed out", "resumed", "renewed"]);
const STEPS_MS = [5, 10, 15, 30, 60, 120, 300, 600, 900].map((seconds) => seconds * 1000);
const TICK_PIXELS = 90;
const ENDED = { CompleteCommit: "last one committed", CompleteAbort: "last one aborted" };

const GLYPHS = {
  aborted: "M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5",
  "timed out": "M4.2 0A4.2 4.2 0 1 1 4.19-.3M0-2.4V0L2 1.2",
  fenced: "M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5",
  ended: "M-3 0H3",
};

// The patterns that the shapes are filled with.
export function patterns() {
  const hatch = (id, className) =>
    svg(
      "pattern",
      { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { class: `${className}-ground`, width: 5, height: 5 }),
      svg("rect", { class: className, width: 2, height: 5 }),
    );
  return svg("svg", { class: "patterns", "aria-hidden": "true" }, svg("defs", {}, hatch("hatch-aborted", "hatch-aborted"), hatch("hatch-late", "hatch-late"), hatch("hatch-waiting", "hatch-waiting")));
}

function title(text) {
  return svg("title", {}, text);
}

function spanTitle(row, now) {
  const many = row.count > 1 ? `${counted(row.count, "transaction")}, the last one ` : "";
  const long = span((row.ended_ms ?? now) - row.began_ms);
  const how = row.how ?? row.state;
  const where = row.partition_count ? ` in ${counted(row.partition_count, "partition")}` : "";
  return `${many}${how}${where}, ${clock(row.began_ms, now)} for ${long}`;
}

// A pixel more at the end: a transaction of a millisecond is seen, too.
function shapes(row, x, now, width) {
  const end = row.ended_ms ?? now;
  const left = Math.max(x(row.began_ms), -2);
  const right = Math.min(Math.max(x(end), left + NARROW), width);
  const how = row.how ?? "open";
  const made = [
    svg("rect", { class: `span span-${how.replace(" ", "-")}`, x: left, y: TOP, width: Math.max(right - left, NARROW), height: THICK, rx: 2 }, title(spanTitle(row, now))),
  ];
  if (row.decided_ms !== null && x(row.decided_ms) < right) {
    const from = Math.max(x(row.decided_ms), 0);
    made.push(svg("rect", { class: "span-markers", x: from, y: TOP + 5, width: Math.max(right - from, 2), height: 4 }));
  }
  for (const [at, count] of row.grown) {
    if (x(at) > left + 2 && x(at) < right) made.push(svg("path", { class: "grown", d: `M${x(at).toFixed(1)} ${TOP + THICK}v-5` }, title(counted(count, "partition"))));
  }
  if (how === "open" && right - left > 46) {
    made.push(svg("text", { class: "span-text", x: Math.max(left, 0) + 5, y: TOP + 11 }, span(now - row.began_ms)));
  } else if (row.count > 1 && right - left > 30) {
    made.push(svg("text", { class: "span-text inside", x: Math.max(left, 0) + 4, y: TOP + 11 }, `× ${row.count}`));
  }
  const glyph = GLYPHS[how];
  if (glyph) made.push(svg("path", { class: `glyph glyph-${how.replace(" ", "-")}`, d: glyph, transform: `translate(${(right + 6).toFixed(1)} ${TOP + 7})` }));
  return made;
}

function fence(event, x) {
  const at = x(event.at_ms).toFixed(1);
  return svg(
    "g",
    { class: "fence" },
    title(`${clock(event.at_ms)} ${event.kind}: ${event.text}`),
    svg("path", { class: "fence-pole", d: `M${at} 1V${HEIGHT - 1}` }),
    svg("path", { class: "fence-flag", d: `M${at} 1l8 3.5-8 3.5z` }),
  );
}

function noteOf(lane, now) {
  const row = lane.row;
  if (row === null) return "not listed any more";
  if (!row.is_open) return ENDED[row.state] ?? "nothing open";
  const where = row.partition_count ? `, ${counted(row.partition_count, "partition")}` : "";
  return `${row.state === "Ongoing" ? "open" : row.state} ${span(now - row.started_ms)}${where}`;
}

function facts(lane, now) {
  const row = lane.row;
  const open = lane.spans.find((each) => each.ended_ms === null);
  const found = [];
  if (row !== null) {
    found.push(["state", row.state + (row.pending_state ? `, ${row.pending_state} is being written` : "")]);
    if (row.client) found.push(["client", row.client]);
    found.push(["producer", `id ${row.producer_id}, epoch ${row.producer_epoch}; coordinated by broker ${row.coordinator}`]);
    if (row.is_open) found.push(["open for", `${span(now - row.started_ms)} since ${clock(row.started_ms, now)}; ${fate(row, now)}`]);
    if (row.fence_cause) found.push(["last new epoch", `${row.fence_cause}${row.fence_ms ? `, ${span(now - row.fence_ms)} ago` : ""}`]);
    if (row.group) found.push(["transaction group", row.group]);
  }
  if (open) {
    const left = open.partition_count - open.partitions.length;
    found.push(["partitions", `${open.partitions.join(", ") || "none yet"}${left > 0 ? ` and ${left} more` : ""}`]);
    if (open.owed) found.push(["markers owed", String(open.owed)]);
  }
  return found;
}

function makeLane(toggle) {
  const button = el("button", { type: "button", class: "lane-name", "aria-expanded": "false" });
  const made = el(
    "li",
    { class: "lane" },
    el("div", { class: "lane-head" }, button, el("span", { class: "lane-note dim" })),
    svg("svg", { class: "track", role: "img", height: HEIGHT }),
    el("div", { class: "lane-detail", hidden: true }, el("dl"), el("ol", { class: "lane-events" })),
  );
  button.addEventListener("click", () => toggle(made));
  return made;
}

function updateLane(item, lane, scale, now) {
  const button = item.querySelector(".lane-name");
  setText(button, lane.name);
  button.title = lane.name;
  item.classList.toggle("is-open", lane.row !== null && lane.row.is_open);
  setText(item.querySelector(".lane-note"), noteOf(lane, now));
  const track = item.querySelector(".track");
  const fences = lane.events.filter((event) => FENCES.has(event.kind));
  track.setAttribute("width", scale.width);
  track.setAttribute("aria-label", `${lane.name}: ${[noteOf(lane, now), summary(lane), fences.length ? counted(fences.length, "fence") : ""].filter(Boolean).join("; ")}`);
  track.replaceChildren(
    ...lane.spans.flatMap((row) => shapes(row, scale.x, now, scale.width)),
    ...fences.map((event) => fence(event, scale.x)),
  );
  const detail = item.querySelector(".lane-detail");
  if (detail.hidden) return;
  detail.querySelector("dl").replaceChildren(...facts(lane, now).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  sync(
    detail.querySelector("ol"),
    lane.events.slice(-12).reverse(),
    (event) => `${event.at_ms} ${event.kind} ${event.text}`,
    (event) => el("li", {}, el("time", { class: "dim" }, clock(event.at_ms)), ` ${event.text}`),
    () => {},
  );
}

function drawAxis(axis, scale, from, now) {
  const step = STEPS_MS.find((each) => ((now - from) / each) * TICK_PIXELS < scale.width) ?? STEPS_MS.at(-1);
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < now; at += step) {
    const x = scale.x(at);
    ticks.push(svg("path", { class: "tick", d: `M${x.toFixed(1)} 14V20` }));
    if (x > 24 && x < scale.width - 30) ticks.push(svg("text", { class: "tick-text", x: x.toFixed(1), y: 11 }, clock(at)));
  }
  axis.setAttribute("width", scale.width);
  axis.replaceChildren(...ticks);
}

export function timeline() {
  const axis = svg("svg", { class: "axis", height: 20, "aria-hidden": "true" });
  const list = el("ol", { class: "lanes" });
  const element = el("div", { class: "timeline" }, el("div", { class: "axis-row" }, axis), list);
  const toggle = (item) => {
    const detail = item.querySelector(".lane-detail");
    detail.hidden = !detail.hidden;
    item.querySelector(".lane-name").setAttribute("aria-expanded", String(!detail.hidden));
  };
  return {
    element,
    draw(lanes, from, now) {
      const width = Math.max(axis.parentElement.clientWidth, 100);
      const drawn = width - 14;
      const scale = { width, x: (ms) => ((ms - from) / (now - from)) * drawn };
      drawAxis(axis, scale, from, now);
      sync(list, lanes, (lane) => lane.id, () => makeLane(toggle), (item, lane) => updateLane(item, lane, scale, now));
    },
  };
}
