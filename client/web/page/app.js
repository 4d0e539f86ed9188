// The page: its views, and when they are drawn.

import { access } from "/access.js";
import { setText } from "/dom.js";
import { groups } from "/groups.js";
import { replicas } from "/replicas.js";
import { connection, now, receive, section } from "/rows.js";
import { transactions } from "/transactions.js";
import { clock, zone } from "/words.js";

const VIEWS = { transactions, groups, replicas, access };
const EVERY_MS = 500;
const SECTIONS = {
  transactions: "transactions",
  pins: "the readers that wait",
  cluster: "replicas",
  groups: "groups",
  access: "access",
};

const main = document.getElementById("main");
const state = document.getElementById("state");
let view = null;

function chosen() {
  const name = location.hash.slice(1);
  return Object.hasOwn(VIEWS, name) ? name : "transactions";
}

function open() {
  const name = chosen();
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === `#${name}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view = VIEWS[name]();
  main.replaceChildren(view.element);
  document.title = `${document.querySelector("nav [aria-current]").textContent} · Odradek`;
  draw();
}

function troubles() {
  return [...section("status")].filter(([, status]) => !status.is_well && !status.is_refusal);
}

// One broker of several that is away may leave the other sections as they are.
function troubleText(troubled) {
  const since = clock(Math.min(...troubled.map(([, status]) => status.since_ms)), now());
  const [[, { sentence }]] = troubled;
  const names = troubled.map(([name]) => name);
  if (names.includes("cluster")) return `no answer from the brokers since ${since}, what is shown is old. ${sentence}`;
  return `${names.map((name) => SECTIONS[name]).join(" and ")} as of ${since}, the rest is live. ${sentence}`;
}

function drawState() {
  const about = section("about").get("");
  setText(document.getElementById("where"), about ? about.bootstrap : "");
  setText(document.getElementById("zone"), zone(now()));
  const troubled = troubles();
  let text = "live";
  if (connection.isFull) text = "too many windows have this page open: close one, and this one goes on";
  else if (!connection.isOpen && connection.since === null) text = "connecting";
  else if (!connection.isOpen) text = `odradek web does not answer since ${clock(connection.since, Date.now())}: what is shown is old`;
  else if (troubled.length) text = troubleText(troubled);
  state.className = { live: "well", connecting: "dim" }[text] ?? "trouble";
  setText(state, text);
}

function draw() {
  drawState();
  if (view !== null) view.draw(now());
}

// The link is no view: it must not change the address, which names one.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", open);
open();
receive(draw);
setInterval(draw, EVERY_MS);
