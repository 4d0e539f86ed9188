// Tables whose rows are kept and updated.

import { el, setText, sync } from "/dom.js";

// A table with these columns, each a name and whether it has numbers. `rows` are
// {key, cells}, where a cell is a text or an element.
export function table(label, columns) {
  const body = el("tbody");
  const head = columns.map(([name, isNumber]) => el("th", { scope: "col", class: isNumber ? "number" : null }, name));
  const element = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, as a table` }, el("table", {}, el("thead", {}, el("tr", {}, head)), body));
  const make = () =>
    el("tr", {}, columns.map(([, isNumber], index) => (index ? el("td", { class: isNumber ? "number" : null }) : el("th", { scope: "row" }))));
  return {
    element,
    draw(rows) {
      element.hidden = !rows.length;
      sync(body, rows, (row) => row.key, make, (item, row) => {
        row.cells.forEach((cell, index) => {
          if (cell instanceof Node) item.children[index].replaceChildren(cell);
          else setText(item.children[index], String(cell ?? ""));
        });
      });
    },
  };
}
