// The partitions whose committed readers wait, by the transaction that they wait for.

import { el, setText, svg, sync } from "/dom.js";
import { missing, section } from "/rows.js";
import { clock, counted, fate, number, span } from "/words.js";

const BARS_MAX = 12;
const BLOCKS_MAX = 6;
const MORE = 30;
const BAR_HEIGHT = 14;
const WIDEST = 84;
const NARROWEST = 1;
const YOUNG_MS = 5000;
const YOUNG_MAX = 6;

const behind = (row) => row.high_watermark - row.last_stable_offset;

// The rows by transaction: those that nothing ends first, then the oldest. A transaction that no
// coordinator has is ended in each partition by a command of its own.
function blocks() {
  const found = new Map();
  for (const row of section("pin").values()) {
    const key = row.is_hanging ? `${row.producer_id} ${row.topic}-${row.partition}` : `${row.producer_id}`;
    if (!found.has(key)) found.set(key, { key, rows: [] });
    found.get(key).rows.push(row);
  }
  for (const block of found.values()) block.rows.sort((a, b) => behind(b) - behind(a));
  return [...found.values()].sort(
    (a, b) => b.rows[0].is_hanging - a.rows[0].is_hanging || a.rows[0].since_ms - b.rows[0].since_ms,
  );
}

function copyButton(code) {
  const button = el("button", { type: "button", class: "small" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // without TLS, beyond this machine, there is no clipboard
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

function makeBlock() {
  const code = el("code");
  return el(
    "li",
    { class: "pin" },
    el("p", { class: "pin-who" }, el("strong"), el("span", { class: "pin-client dim" })),
    el("p", { class: "pin-fate" }),
    el("p", { class: "pin-command" }, el("span", { class: "dim" }), code, copyButton(code)),
    el("ul", { class: "bars" }),
    el("p", { class: "dim pin-more" }),
  );
}

function updateBlock(block, rows, most, now) {
  const [row] = rows;
  const total = rows.reduce((sum, each) => sum + behind(each), 0);
  const verb = total === 1 ? "waits" : "wait";
  const who = row.name ?? `producer id ${row.producer_id}, epoch ${row.producer_epoch}`;
  setText(block.querySelector("strong"), who);
  setText(block.querySelector(".pin-client"), row.client ? ` ${row.client}` : "");
  const since = row.since_ms === null ? "" : `, open for ${span(now - row.since_ms)} since ${clock(row.since_ms, now)}`;
  setText(block.querySelector(".pin-fate"), `${counted(total, "record")} ${verb}${since}; ${fate(row, now)}`);
  const command = block.querySelector(".pin-command");
  const given = row.command ?? row.describe ?? null;
  command.hidden = given === null;
  const ends = row.is_hanging ? "ends it in this partition: " : "ends it: ";
  setText(command.querySelector("span"), row.command === null ? "shows what it waits for: " : ends);
  setText(command.querySelector("code"), given ?? "");
  block.classList.toggle("hanging", row.is_hanging);
  const shown = rows.slice(0, BARS_MAX);
  sync(
    block.querySelector(".bars"),
    shown,
    (each) => `${each.topic}-${each.partition}`,
    makeBar,
    (item, each) => updateBar(item, each, most),
  );
  const left = rows.length - shown.length;
  setText(block.querySelector(".pin-more"), left ? `and ${counted(left, "partition")} more` : "");
}

function makeBar() {
  return el(
    "li",
    {},
    el("span", { class: "bar-name" }),
    el("span", { class: "bar-from" }),
    svg("svg", { class: "bar", role: "img", height: BAR_HEIGHT }),
  );
}

function updateBar(item, row, most) {
  setText(item.querySelector(".bar-name"), `${row.topic}-${row.partition}`);
  setText(item.querySelector(".bar-from"), number(row.last_stable_offset));
  const picture = item.querySelector("svg");
  const waiting = counted(behind(row), "record");
  const others = row.other_count ? `, with ${counted(row.other_count, "other open transaction")}` : "";
  picture.setAttribute(
    "aria-label",
    `last stable offset ${row.last_stable_offset}, high watermark ${row.high_watermark}: ${waiting} between them${others}`,
  );
  const width = Math.max((behind(row) / Math.max(most, 1)) * WIDEST, NARROWEST);
  const scale = width / Math.max(behind(row), 1);
  picture.replaceChildren(
    svg("rect", { class: "bar-waiting", x: 0, y: 2, width: `${width}%`, height: 10 }),
    svg("rect", { class: "bar-edge", x: 0, y: 0, width: 2, height: BAR_HEIGHT }),
    svg("svg", { x: `${width}%`, overflow: "visible" }, svg("text", { class: "bar-to", x: 7, y: 11.5 }, number(row.high_watermark))),
    ...row.others.map((offset) =>
      svg("rect", { class: "bar-other", x: `${(offset - row.last_stable_offset) * scale}%`, y: 2, width: 1.5, height: 10 }),
    ),
  );
}

// The transactions that have just begun, in one line, so that the page stands still.
function youngLine(young) {
  if (!young.length) return "";
  const named = young.slice(0, YOUNG_MAX).map(({ rows: [row] }) => row.name ?? `producer id ${row.producer_id}`);
  const left = young.length - named.length;
  return `Open for less than ${YOUNG_MS / 1000} s: ${named.join(", ")}${left > 0 ? ` and ${left} more` : ""}.`;
}

export function pins() {
  const list = el("ol", { class: "pins" });
  const young = el("p", { class: "young dim" });
  const lack = el("p", { class: "lack" });
  let shown = BLOCKS_MAX;
  const further = el("button", { type: "button", class: "more", hidden: true });
  further.addEventListener("click", () => {
    shown += MORE;
    further.hidden = true;
  });
  const element = el("section", { class: "waiting", "aria-labelledby": "pins-title" }, el("h2", { id: "pins-title" }, "Readers wait"), lack, list, further, young);
  return {
    element,
    draw(now) {
      const all = blocks();
      const old = all.filter(({ rows: [row] }) => row.is_hanging || now - row.since_ms >= YOUNG_MS);
      const most = Math.max(0, ...old.map((block) => behind(block.rows[0])));
      setText(lack, missing("pins") ?? "");
      const nobody = old.length ? "" : "No transaction that has been open for long keeps committed readers waiting.";
      further.hidden = old.length <= shown;
      setText(further, `Show more of ${counted(old.length, "transaction")}`);
      const recent = youngLine(all.filter((block) => !old.includes(block)));
      setText(young, [nobody, recent].filter(Boolean).join(" "));
      sync(
        list,
        old.slice(0, shown),
        (block) => block.key,
        makeBlock,
        (item, block) => updateBlock(item, block.rows, most, now),
      );
    },
  };
}
