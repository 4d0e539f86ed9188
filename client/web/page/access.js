// The view of access: why something is permitted, entries, users and quotas.

import { el, setText } from "/dom.js";
import { section } from "/rows.js";
import { table } from "/tables.js";
import { number } from "/words.js";

const OPERATIONS = ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs", "cluster_action", "idempotent_write", "two_phase_commit"];
const RESOURCES = ["topic", "group", "transactional_id", "cluster"];

function choice(id, words) {
  return el("select", { id }, words.map((word) => el("option", { value: word }, word.replaceAll("_", " "))));
}

// The question `odradek acl why`.
function question() {
  const fields = {
    principal: el("input", { type: "text", id: "principal", value: "User:", autocomplete: "off", spellcheck: "false" }),
    operation: choice("operation", OPERATIONS),
    resource: choice("resource", RESOURCES),
    name: el("input", { type: "text", id: "name", autocomplete: "off", spellcheck: "false" }),
  };
  const answer = el("p", { class: "answer", role: "status" });
  const form = el(
    "form",
    { class: "question" },
    el("label", { for: "principal" }, "May ", fields.principal),
    el("label", { for: "operation" }, fields.operation),
    el("label", { for: "resource" }, "the ", fields.resource),
    el("label", { for: "name" }, "called ", fields.name, "?"),
    el("button", { type: "submit" }, "Ask"),
  );
  fields.operation.setAttribute("aria-label", "operation");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = Object.entries(fields).map(([name, field]) => [name, field.value]);
    try {
      const response = await fetch(`/why?${new URLSearchParams(values)}`);
      const said = await response.json();
      if (said.error) setText(answer, said.error);
      else setText(answer, `${said.is_allowed ? "✓ Allowed" : "✕ Denied"}: ${said.text}`);
    } catch {
      setText(answer, "odradek web does not answer.");
    }
  });
  return el("section", { "aria-labelledby": "why-title" }, el("h2", { id: "why-title" }, "Why"), form, answer);
}

function part(title, name, shown, empty, cellsOf) {
  const note = el("p", { class: "dim" });
  const id = `${name}-title`;
  return {
    element: el("section", { "aria-labelledby": id }, el("h2", { id }, title), note, shown.element),
    draw() {
      const rows = [...section(name)];
      const refused = section("refused").get(name);
      const count = section("count").get(name) ?? rows.length;
      note.className = refused && !refused.is_off ? "lack" : "dim";
      const more = count > rows.length ? `The first ${rows.length} of ${number(count)}.` : "";
      setText(note, refused ? refused.text : rows.length ? more : empty);
      shown.draw(rows.map(([key, row]) => ({ key, cells: cellsOf(row) })));
    },
  };
}

export function access() {
  const parts = [
    part(
      "Entries",
      "acl",
      table("Entries", [["principal"], ["may or may not"], ["operation"], ["resource"], ["name"], ["host"], ["note"]]),
      "There are no entries.",
      (row) => [row.principal, row.permission, row.operation, row.resource, row.is_prefix ? `${row.name}… (prefix)` : row.name, row.host, row.never_counts ? `never counts: ${row.never_counts}` : ""],
    ),
    part("Users", "user", table("Users", [["user"], ["mechanisms"]]), "There are no users with passwords.", (row) => [
      row.name,
      Object.entries(row.mechanisms).map(([name, iterations]) => `${name} (${number(iterations)})`).join(", "),
    ]),
    part("Quotas", "quota", table("Quotas", [["of"], ["quota"], ["a second", true]]), "There are no quotas.", (row) => [row.whose, row.quota, row.value === null ? "no limit" : number(row.value)]),
  ];
  return {
    element: el("div", { class: "view" }, question(), parts.map((each) => each.element)),
    draw: () => parts.forEach((each) => each.draw()),
  };
}
