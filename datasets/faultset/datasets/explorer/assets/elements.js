// Create elements. Text from the data becomes text nodes and harmless attribute values, never code.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "css") for (const [property, one] of Object.entries(value)) node.style.setProperty(property, one);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const announce = (text) => { document.getElementById("announce").textContent = text; };

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e12) return (value / 1e12).toPrecision(3) + " T";
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + " G";
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + " M";
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + " k";
  if (size === 0 || Number.isInteger(value)) return String(value);
  return size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}
function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return number(value / 1000) + " s";
  return value < 0.1 ? number(value * 1000) + " µs" : number(value) + " ms";
}
const seconds = (value) => (value === null || value === undefined ? "–" : `${Number(value.toFixed(1))} s`);
const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many || one + "s"}`;

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
function embedded(name) {
  const block = document.getElementById(name);
  if (!block) return null;
  const text = atob(block.textContent);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  return bytes;
}
function stored(key, value) {
  try {
    if (value === undefined) return JSON.parse(localStorage.getItem(key));
    localStorage.setItem(key, JSON.stringify(value));
  } catch { /* private windows and files without storage: kept for this page only */ }
  return null;
}
