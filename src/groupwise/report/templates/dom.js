// Elements, numbers and packed arrays. Text of a run reaches the page as text nodes alone.
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const several = runs.length > 1;
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const SPELLED = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };
const real = (value) => (typeof value === "string" ? SPELLED[value] : value);

function shown(value, digits = 4) {
  value = real(value);
  if (value === null || value === undefined) return "none";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "infinity" : "-infinity";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(digits - 2);
  return String(Number(value.toPrecision(digits)));
}
const exact = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(7))) : shown(value));

const KINDS = { f4: [4, "getFloat32"], f8: [8, "getFloat64"], i4: [4, "getInt32"] };
function unpacked(text, kind) {
  const [size, get] = KINDS[kind];
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / size }, (_, i) => view[get](i * size, true));
}

function section(id, title, ...children) {
  const node = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
  document.getElementById("main").append(node);
  return node;
}
const runText = (text) => el("div", { class: "run-text", dir: "auto" }, text);
const color = (i) => `var(--c${(i % 8) + 1})`;
const swatch = (i) => {
  const node = el("span", { class: "swatch", "aria-hidden": "true" });
  node.style.borderColor = color(i);
  return node;
};
