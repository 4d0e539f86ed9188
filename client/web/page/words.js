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

// A time of day, with its date unless that is today. `now` is the present.
export function clock(ms, now = ms) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString("en-GB");
  if (at.toDateString() === new Date(now).toDateString()) return time;
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

// The time zone of the times on the page, as its distance from that of logs: UTC+2, UTC-3:30.
export function zone(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  const rest = Math.abs(minutes) % 60;
  const hours = Math.floor(Math.abs(minutes) / 60);
  if (!minutes) return "UTC";
  return `UTC${minutes < 0 ? "-" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}

// How a transaction will end, as far as it is known.
export function fate(row, now) {
  if (row.is_hanging) return "no coordinator will end it";
  if (row.state === null) return "its transactional id is not shown to this page, which lacks DESCRIBE of it";
  if (row.state === "PrepareCommit") return "it is decided: its commit marker is to be written";
  if (row.state === "PrepareAbort") return "it is decided: its abort marker is to be written";
  if (row.state === "PrepareEpochFence") return "its producer is being fenced";
  if (row.state !== "Ongoing") return `it is ${row.state}`;
  if (row.deadline_ms === null) return "it does not time out";
  const left = row.deadline_ms - now;
  return left >= 0 ? `aborted in ${span(left)} at the latest` : `its time-out is overdue by ${span(-left)}`;
}
