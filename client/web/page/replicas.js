// The view of the cluster: brokers, partitions that are not in sync or move.

import { el, setText } from "/dom.js";
import { missing, section } from "/rows.js";
import { table } from "/tables.js";
import { counted, number } from "/words.js";

function whereOf(row) {
  const said = [];
  if (row.leader < 0) said.push("no leader");
  const away = row.replicas.filter((node) => !row.in_sync.includes(node));
  if (away.length) said.push(`not in sync: ${away.join(", ")}`);
  if (row.adding.length) said.push(`moves to ${row.adding.join(", ")}`);
  if (row.removing.length) said.push(`leaves ${row.removing.join(", ")}`);
  return said.join("; ");
}

export function replicas() {
  const figures = el("p", { class: "figures" });
  const lack = el("p", { class: "lack" });
  const calm = el("p", { class: "dim" });
  const brokers = table("Brokers", [["broker"], ["address"], ["rack"], ["leads", true], ["note"]]);
  const odd = table("Partitions that are not in sync, or move", [["partition"], ["leader", true], ["epoch", true], ["replicas"], ["in sync"], ["note"]]);
  const element = el(
    "div",
    { class: "view" },
    figures,
    el("section", { "aria-labelledby": "brokers-title" }, el("h2", { id: "brokers-title" }, "Brokers"), brokers.element),
    el("section", { "aria-labelledby": "odd-title" }, el("h2", { id: "odd-title" }, "Not in sync, or moving"), lack, calm, odd.element),
  );
  return {
    element,
    draw() {
      const cluster = section("cluster").get("");
      if (cluster === undefined) return;
      const trouble = [];
      if (cluster.leaderless) trouble.push(`${number(cluster.leaderless)} without a leader`);
      if (cluster.lagging) trouble.push(`${number(cluster.lagging)} not in sync`);
      setText(figures, `${counted(cluster.partition_count, "partition")} of ${counted(cluster.topic_count, "topic")} · ${trouble.join(" · ") || "all in sync"}`);
      brokers.draw(
        [...section("broker")].map(([id, row]) => ({
          key: id,
          cells: [id, row.address, row.rack ?? "", number(row.leads), [Number(id) === cluster.controller ? "controller" : "", row.is_away ? "away" : ""].filter(Boolean).join(", ")],
        })),
      );
      const rows = [...section("replicas")];
      setText(lack, missing("cluster") ?? "");
      setText(calm, rows.length ? "" : "Every replica is in sync, and none moves.");
      odd.draw(
        rows.map(([key, row]) => ({
          key,
          cells: [`${row.topic}-${row.partition}`, row.leader < 0 ? "none" : row.leader, row.leader_epoch, row.replicas.join(", "), row.in_sync.join(", "), whereOf(row)],
        })),
      );
    },
  };
}
