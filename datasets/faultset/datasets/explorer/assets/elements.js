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

// Time axis shared by all plots of an episode, with one cursor.
class Axis {
  constructor(episode, root) {
    this.episode = episode;
    this.root = root;
    this.steps = episode.steps;
    this.followers = new Set();
    this.step = 0;
    root.style.setProperty("--reference", episode.reference / episode.seconds);
    const truth = episode.truth;
    if (truth && truth.inject_start !== null) {
      root.style.setProperty("--onset", Math.min(1, Math.max(0, truth.inject_start / episode.seconds)));
    }
  }
  follow(follower) { this.followers.add(follower); follower(this.step); return follower; }
  unfollow(follower) { this.followers.delete(follower); }
  seconds(step = this.step) { return step * this.episode.step; }
  to(step) {
    this.step = Math.max(0, Math.min(this.steps - 1, Math.round(step)));
    this.root.style.setProperty("--at", (this.step + 0.5) / this.steps);
    for (const follower of this.followers) follower(this.step);
  }
  point(event, plot) {
    const box = plot.getBoundingClientRect();
    this.to(((event.clientX - box.left) / box.width) * this.steps - 0.5);
  }
  // A lane: a name and the value at the cursor on the left, the plot on the right.
  lane({ name, title, height = 56, draw, value, kind = "", open }) {
    const shown = h("span", { class: "value" });
    const plot = h("div", { class: "plot", css: { height: `${height}px` }, on: {
      pointerdown: (event) => this.point(event, plot),
      pointermove: (event) => { if (event.pointerType === "mouse" || event.buttons) this.point(event, plot); },
    } });
    plot.append(...[draw(plot)].flat());
    const label = open
      ? h("button", { class: "name link", type: "button", title: title || name, on: { click: open } }, name)
      : h("span", { class: "name", title: title || name }, name);
    const row = h("div", { class: `lane ${kind}` }, h("div", { class: "label" }, label, shown), plot);
    if (value) row.follower = this.follow((step) => { shown.textContent = value(step); });
    return row;
  }
  drawing(...shapes) {
    return s("svg", { viewBox: `0 0 ${this.steps} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...shapes);
  }
  // A line through the middles of the steps, broken where there is no number.
  line(values, low, high, name) {
    const range = high - low || 1;
    let path = "", pen = false;
    values.forEach((value, step) => {
      if (value === null) { pen = false; return; }
      const y = (97 - ((value - low) / range) * 92).toFixed(1);
      const alone = !pen && (step + 1 >= values.length || values[step + 1] === null);
      path += pen ? `L${step + 0.5} ${y}` : `M${step + (alone ? 0.2 : 0.5)} ${y}`;
      if (alone) path += `L${step + 0.8} ${y}`;
      pen = true;
    });
    return s("path", { d: path, class: `line ${name}` });
  }
  // Stacked bars, one colour for each part.
  bars(parts, high) {
    const base = new Array(this.steps).fill(0);
    return parts.map(([values, name]) => {
      let path = "";
      values.forEach((value, step) => {
        if (!value) return;
        const top = 100 - ((base[step] + value) / high) * 95, bottom = 100 - (base[step] / high) * 95;
        path += `M${step} ${bottom.toFixed(2)}V${top.toFixed(2)}H${step + 1}V${bottom.toFixed(2)}Z`;
        base[step] += value;
      });
      return s("path", { d: path, class: `area ${name}` });
    });
  }
  markers(rows, name) {
    let path = "";
    for (const time of rows) {
      const x = Math.min(this.steps, Math.max(0, time / this.episode.step));
      path += `M${x.toFixed(2)} 12V88`;
    }
    return s("path", { d: path, class: `marker ${name}` });
  }
  scale(text) { return h("span", { class: "scale" }, text); }
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value !== null) { if (value < low) low = value; if (value > high) high = value; }
  return low > high ? [0, 1] : [low, high];
}
const highest = (...rows) => Math.max(1e-9, ...rows[0].map((_, step) => rows.reduce((sum, row) => sum + (row[step] || 0), 0)));
