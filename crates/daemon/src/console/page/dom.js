// Elements of the page. Values come in as text or attributes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "onclick") node.onclick = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

// An element with attributes and children; what is no element becomes text.
export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

// The same for a drawing.
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Makes `old` what `now` is, and leaves alone what is the same: focus and selection stay where they are.
export function patch(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
    old.replaceWith(now);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  // Whoever opened a part of the page wants it open.
  const own = (name) => name === "open" && old.nodeName === "DETAILS";
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !own(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  old.onclick = now.onclick;
  const before = [...old.childNodes];
  [...now.childNodes].forEach((node, i) => (before[i] ? patch(before[i], node) : old.append(node)));
  before.slice(now.childNodes.length).forEach((node) => node.remove());
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// Bytes as people say them.
export function bytes(n) {
  let unit = 0;
  while (n >= 1024 && unit < UNITS.length - 1) [n, unit] = [n / 1024, unit + 1];
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${UNITS[unit]}`;
}

// Microseconds as people say them.
export function micros(us) {
  if (us === null || us === undefined) return "-";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}

// Seconds as people say them.
export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

// A host as it is written before a colon: an address of IPv6 stands in brackets.
export const shownHost = (host) => (host.split(":").length > 2 && !host.startsWith("[") ? `[${host}]` : host);

export const count = (n) => Number(n).toLocaleString("en");

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

// How much of something is used, from 0 to 1.
export function bar(share, label, level) {
  const own = level ?? (share > 0.95 ? "bad" : share > 0.85 ? "warn" : "");
  return el("progress", { class: `bar ${own}`, max: 1000, value: Math.round(share * 1000), "aria-label": label });
}

// A word for a state, with a colour.
export const chip = (level, ...words) => el("span", { class: `chip ${level}` }, ...words);

export const button = (text, onclick, kind) => el("button", { type: "button", class: kind ?? "", onclick }, text);

// A table; `#` before a column's name: numbers. On a phone each row is a block whose cells carry the columns' names, unless
// it is a table to compare rows in.
export function table(columns, rows, empty, compare) {
  if (rows.length === 0) return el("p", { class: "faint" }, empty);
  const name = (column) => column.replace("#", "");
  const kind = (column) => (column.startsWith("#") ? "number" : "");
  const head = columns.map((c) => el("th", { scope: "col", class: kind(c) }, name(c)));
  const cells = (row) => row.map((value, i) =>
    el("td", { "data-name": name(columns[i]), class: kind(columns[i]) }, value === "" ? null : el("div", {}, value)));
  const made = el("table", { class: compare ? "compare" : "blocks" },
    el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, rows.map((row) => el("tr", {}, cells(row)))));
  return el("div", { class: "wide" }, made);
}
