// What the timeline and its table show: lanes with their spans and fences, in order.

import { section } from "/rows.js";

const STEADY_MS = 5000;

// The lanes that have something to show since `from`, the longest open ones first, then by name.
// A transaction that has just begun does not move its lane, so busy lanes stand still.
export function lanesSince(from, now, filter, showsAll) {
  const byLane = new Map();
  const of = (id) => {
    if (!byLane.has(id)) byLane.set(id, { id, row: null, spans: [], events: [] });
    return byLane.get(id);
  };
  for (const [id, row] of section("lane")) {
    if (row.is_open || showsAll) of(id).row = row;
  }
  for (const span of section("span").values()) {
    if (span.ended_ms === null || span.ended_ms >= from) of(span.id).spans.push(span);
  }
  for (const event of section("event").values()) {
    if (event.at_ms >= from) of(event.id).events.push(event);
  }
  const found = [];
  for (const lane of byLane.values()) {
    lane.row ??= section("lane").get(lane.id) ?? null;
    lane.name = lane.row ? lane.row.name : JSON.stringify(lane.id).slice(1, -1);
    lane.isOld = lane.row !== null && lane.row.is_open && now - (lane.row.started_ms ?? now) > STEADY_MS;
    if (lane.name.toLowerCase().includes(filter)) found.push(lane);
  }
  return found.sort(
    (a, b) =>
      b.isOld - a.isOld ||
      (a.isOld ? a.row.started_ms - b.row.started_ms : 0) ||
      (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  );
}

// What has happened in a lane, in a few words.
export function summary(lane) {
  const counts = new Map();
  for (const span of lane.spans) {
    if (span.how !== null) counts.set(span.how, (counts.get(span.how) ?? 0) + span.count);
  }
  return [...counts].map(([how, count]) => `${count} ${how}`).join(", ");
}
