// The view of groups: lag over an hour, members, and what has made a group rebalance.

import { el, setText, svg, sync } from "/dom.js";
import { missing, section } from "/rows.js";
import { table } from "/tables.js";
import { patterns } from "/timeline.js";
import { clock, counted, number, span } from "/words.js";

const HEIGHT = 46;
const HOUR_MS = 3_600_000;
const EVENTS_SHOWN = 30;

function samplesByGroup() {
  const found = new Map();
  for (const [key, samples] of section("lag")) {
    const name = key.slice(key.indexOf(" ") + 1);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(...samples);
  }
  for (const samples of found.values()) samples.sort((a, b) => a[0] - b[0]);
  return found;
}

function curve(samples, x, y, index) {
  const points = samples.map((each) => `${x(each[0]).toFixed(1)} ${y(each[index]).toFixed(1)}`);
  return { line: `M${points.join("L")}`, area: `M${x(samples[0][0]).toFixed(1)} ${y(0)}L${points.join("L")}L${x(samples.at(-1)[0]).toFixed(1)} ${y(0)}Z` };
}

// The lag, and hatched the part of it that waits behind an open transaction.
function drawLag(picture, samples, now) {
  const width = picture.clientWidth || 300;
  const most = Math.max(1, ...samples.map((each) => each[1]));
  const first = Math.max(now - HOUR_MS, Math.min(samples[0]?.[0] ?? now, now - 60_000));
  const x = (at) => ((at - first) / (now - first)) * width;
  const y = (lag) => HEIGHT - 2 - (lag / most) * (HEIGHT - 14);
  picture.setAttribute("aria-label", `lag over ${span(now - first)}, at most ${number(most)}`);
  const drawn = [];
  if (samples.length > 1) {
    const all = curve(samples, x, y, 1);
    drawn.push(svg("path", { class: "lag-area", d: all.area }));
    if (samples.some((each) => each[2])) drawn.push(svg("path", { class: "lag-pinned", d: curve(samples, x, y, 2).area }));
    drawn.push(svg("path", { class: "lag-line", d: all.line }));
  }
  drawn.push(svg("path", { class: "tick", d: `M0 ${HEIGHT - 1.5}H${width}` }));
  drawn.push(svg("text", { class: "lag-most", x: 0, y: 9 }, `${number(most)} at most · ${span(now - first)}`));
  picture.replaceChildren(...drawn);
}

function makeGroup(toggle) {
  const button = el("button", { type: "button", class: "lane-name", "aria-expanded": "false" });
  const partitions = table("Partitions", [["partition"], ["committed", true], ["last stable", true], ["end", true], ["lag", true]]);
  const members = table("Members", [["member"], ["partitions", true]]);
  const made = el(
    "li",
    { class: "group" },
    el("div", { class: "group-head" }, button, el("p", { class: "group-note dim" })),
    el("p", { class: "group-lag" }, el("strong"), el("span", { class: "dim" })),
    svg("svg", { class: "lag", role: "img", height: HEIGHT }),
    el("div", { class: "group-detail", hidden: true }, partitions.element, members.element),
  );
  made.parts = { partitions, members };
  button.addEventListener("click", () => toggle(made));
  return made;
}

function updateGroup(item, [, row], samples, now) {
  setText(item.querySelector(".lane-name"), row.name);
  const kind = [row.state, row.type === "consumer" ? "new protocol" : row.type, row.assignor].filter(Boolean).join(", ");
  setText(item.querySelector(".group-note"), `${counted(row.member_count, "member")} · ${kind}`);
  const last = samples.at(-1);
  setText(item.querySelector("strong"), last ? `${number(last[1])} behind` : "lag not known");
  const seconds = row.behind_ms === null ? "" : row.behind_ms > 0 ? `about ${span(row.behind_ms)}` : "";
  const pinned = last && last[2] ? `${number(last[2])} of them behind open transactions` : "";
  setText(item.querySelector(".group-lag span"), [seconds, pinned].filter(Boolean).join(", "));
  drawLag(item.querySelector(".lag"), samples, now);
  if (item.querySelector(".group-detail").hidden) return;
  item.parts.partitions.draw(
    row.partitions.map(([topic, partition, offset, stable, end, lag]) => ({
      key: `${topic}-${partition}`,
      cells: [`${topic}-${partition}`, ...[offset, stable, end, lag].map((each) => (each === null ? "" : number(each)))],
    })),
  );
  item.parts.members.draw(row.members.map(([who, count], index) => ({ key: `${index} ${who}`, cells: [who, number(count)] })));
}

export function groups() {
  const list = el("ol", { class: "groups" });
  const lack = el("p", { class: "lack" });
  const nothing = el("p", { class: "dim" });
  const news = el("ol", { class: "happened plain" });
  const quiet = el("p", { class: "dim" });
  const element = el(
    "div",
    { class: "view view-transactions" },
    patterns(),
    el("section", { "aria-labelledby": "groups-title" }, el("h2", { id: "groups-title" }, "Groups"), lack, nothing, list),
    el("section", { class: "news", "aria-labelledby": "rebalances-title" }, el("h2", { id: "rebalances-title" }, "Rebalances"), quiet, news),
  );
  const toggle = (item) => {
    const detail = item.querySelector(".group-detail");
    detail.hidden = !detail.hidden;
    item.querySelector(".lane-name").setAttribute("aria-expanded", String(!detail.hidden));
  };
  return {
    element,
    draw(now) {
      setText(lack, missing("groups") ?? "");
      const rows = [...section("group")];
      const all = section("groups").get("");
      const more = all && all.count > all.followed ? `The first ${all.followed} of ${all.count} groups.` : "";
      setText(nothing, rows.length ? more : "There is no group.");
      const samples = samplesByGroup();
      const lagOf = ([key]) => samples.get(key)?.at(-1)?.[1] ?? 0;
      rows.sort((a, b) => Math.sign(lagOf(b)) - Math.sign(lagOf(a)) || (a[1].name < b[1].name ? -1 : 1));
      sync(list, rows, (row) => row[0], () => makeGroup(toggle), (item, row) => updateGroup(item, row, samples.get(row[0]) ?? [], now));
      const events = [...section("group_event")].reverse().slice(0, EVENTS_SHOWN);
      setText(quiet, events.length ? "" : "No rebalance has been seen in the last hour.");
      sync(
        news,
        events,
        ([key]) => key,
        ([, event]) => el("li", {}, el("time", { class: "dim" }, clock(event.at_ms)), el("span", {}, el("strong", {}, event.name), ` ${event.text}`)),
        () => {},
      );
    },
  };
}
