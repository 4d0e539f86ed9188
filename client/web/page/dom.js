// Elements. Names are any text that a stranger has chosen, so text goes in as text nodes only.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Set the text of an element, if it is another one: a selection in it stays otherwise.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Make `list` have one child for each item, in their order. A child is made once for each key and
// then updated, so that focus and selection stay where they are. What goes is removed first: a child
// that is moved loses its focus.
export function sync(list, items, keyOf, make, update) {
  const there = new Map();
  const wanted = new Set(items.map((item) => String(keyOf(item))));
  for (const child of [...list.children]) {
    if (wanted.has(child.dataset.key) && !there.has(child.dataset.key)) there.set(child.dataset.key, child);
    else child.remove();
  }
  let place = list.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = there.get(key);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = key;
    }
    there.delete(key);
    if (child === place) place = place.nextElementSibling;
    else list.insertBefore(child, place);
    update(child, item);
  }
}
