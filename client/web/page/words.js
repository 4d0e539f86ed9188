// Words for people: durations, counts, times of day. They are those of the commands.

export function span(ms) {
  if (ms < 9950) return `${(Math.max(ms, 0) / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

export const number = (count) => count.toLocaleString("en-US");

export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

// How a transaction will end, as far as it is known.
export function fate(row, now) {
  if (row.is_hanging) return "no coordinator will end it";
  if (row.state === null) return "its transactional id is not shown to this page";
  if (row.state === "PrepareCommit") return "it is decided: its commit marker is to be written";
  if (row.state === "PrepareAbort") return "it is decided: its abort marker is to be written";
  if (row.state !== "Ongoing") return `it is ${row.state}`;
  if (row.deadline_ms === null) return "it does not time out";
  const left = row.deadline_ms - now;
  return left >= 0 ? `aborted in ${span(left)} at the latest` : `its time-out is overdue by ${span(-left)}`;
}
