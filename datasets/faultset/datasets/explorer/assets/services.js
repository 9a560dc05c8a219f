// Client requests, and the health of services over time and on the map.
const STATES = ["no calls", "fine", "slow", "failing", "silent"];

function clientLanes(axis, clients) {
  const high = highest(clients.ok, clients.failed, clients.unfinished);
  const [, top] = range(clients.p95);
  const per = axis.episode.step === 1 ? "/s" : ` in ${axis.episode.step} s`;
  return [
    axis.lane({ name: "Requests", height: 72,
      draw: () => [axis.drawing(axis.bars([[clients.ok, "ok"], [clients.failed, "bad"], [clients.unfinished, "unfinished"]], high)), axis.scale(number(high) + per)],
      value: (step) => `${clients.ok[step]} ok, ${clients.failed[step]} failed` + (clients.unfinished[step] ? `, ${clients.unfinished[step]} unfinished` : "") }),
    axis.lane({ name: "Latency", height: 72,
      draw: () => [axis.drawing(axis.line(clients.p95, 0, top, "second"), axis.line(clients.p50, 0, top, "first")), axis.scale(milliseconds(top))],
      value: (step) => `p50 ${milliseconds(clients.p50[step])}, p95 ${milliseconds(clients.p95[step])}` }),
    h("p", { class: "key" }, h("i", { class: "ok" }), "answered ", h("i", { class: "bad" }), "failed ", h("i", { class: "unfinished" }), "unfinished ",
      h("i", { class: "first thin" }), "p50 ", h("i", { class: "second thin" }), "p95"),
    h("details", {}, h("summary", {}, "Endpoints, before and after the end of the reference"), scrolling(["Endpoint", "Requests", "Failed", "Median", "Requests after", "Failed after", "Median after"],
      clients.endpoints.map((row) => [row.endpoint, row.before.requests, row.before.failed, milliseconds(row.before.ms), row.after.requests, row.after.failed, milliseconds(row.after.ms)]))),
  ];
}

function scrolling(columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": columns.join(", ") }, h("table", {}, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

function stateText(node, step) {
  const state = node.state[step];
  if (state === 0) return "–";
  if (state === 4) return "silent";
  const share = node.failed[step] ? `, ${Math.round((100 * node.failed[step]) / node.calls[step])} % failed` : "";
  return `${STATES[state]}, ${milliseconds(node.ms[step])}${share}`;
}

function healthLanes(axis, map, choose, causes) {
  const levels = [[1, 34, "ok"], [2, 62, "slow"], [3, 96, "bad"], [4, 96, "silent"]];
  return map.nodes.map((node) => axis.lane({
    name: causes.has(node.name) ? `★ ${node.name}` : node.name, title: `Metrics of ${node.name}`, height: 16, kind: "thin", open: () => choose(node.name),
    draw: () => axis.drawing(levels.map(([state, height, name]) => {
      let path = "";
      for (let step = 0; step < node.state.length; step++) {
        if (node.state[step] !== state) continue;
        let end = step;
        while (end + 1 < node.state.length && node.state[end + 1] === state) end++;
        path += `M${step} 98V${98 - height}H${end + 1}V98Z`;
        step = end;
      }
      return s("path", { d: path, class: `area ${name}` });
    })),
    value: (step) => stateText(node, step),
  }));
}

function serviceMap(axis, map, choose, causes) {
  const width = 176, high = 30, gap = 42;
  const layers = Math.max(...map.nodes.map((node) => node.layer)) + 1;
  const rows = Math.max(...map.nodes.map((node) => node.place)) + 1;
  const sizes = new Map();
  for (const node of map.nodes) sizes.set(node.layer, (sizes.get(node.layer) || 0) + 1);
  const place = new Map(map.nodes.map((node) => {
    const shift = (rows - sizes.get(node.layer)) / 2;
    return [node.name, [12 + node.layer * (width + 70), 12 + (node.place + shift) * gap]];
  }));
  const svg = s("svg", { class: "map", viewBox: `0 0 ${layers * (width + 70) - 46} ${rows * gap + 14}`, role: "group", "aria-label": "Map of services" });
  for (const edge of map.edges) {
    const [x1, y1] = place.get(edge.from), [x2, y2] = place.get(edge.to);
    const forward = x2 > x1;
    const a = forward ? x1 + width : x1, b = forward ? x2 : x2 + width, bend = forward ? 35 : -35;
    svg.append(s("path", { class: `edge${edge.calls ? "" : " unused"}`, d: `M${a} ${y1 + high / 2}C${a + bend} ${y1 + high / 2} ${b - bend} ${y2 + high / 2} ${b} ${y2 + high / 2}`,
      "stroke-width": 1 + Math.min(3, Math.log10(1 + edge.calls)) }, s("title", {}, `${edge.from} calls ${edge.to}: ${plural(edge.calls, "call")}`)));
  }
  const boxes = map.nodes.map((node) => {
    const [x, y] = place.get(node.name);
    const text = s("text", { x: x + 10, y: y + 25, class: "state" });
    const short = node.name.length > 21 ? node.name.slice(0, 20) + "…" : node.name;
    const box = s("g", { class: "node", tabindex: "0", role: "button", "aria-label": node.name, on: {
      click: () => choose(node.name),
      keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(node.name); } },
    } }, s("rect", { x, y, width, height: high, rx: 7 }), s("text", { x: x + 10, y: y + 13, class: `title${causes.has(node.name) ? " cause" : ""}` }, causes.has(node.name) ? `★ ${short}` : short), text, s("title", {}, node.name));
    svg.append(box);
    return [node, box, text];
  });
  axis.follow((step) => {
    for (const [node, box, text] of boxes) {
      box.setAttribute("class", `node state-${node.state[step]}`);
      text.textContent = stateText(node, step);
    }
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Map of services" }, svg);
}
const mapKey = (causes) => h("p", { class: "key" }, h("i", { class: "ok low" }), "fine ", h("i", { class: "slow middle" }), "slow: more than twice the reference ",
  h("i", { class: "bad" }), "failing: 5 % of calls and more ", h("i", { class: "silent" }), "silent: calls were expected and none came", causes.size > 0 && h("b", {}, " ★ root cause"));
