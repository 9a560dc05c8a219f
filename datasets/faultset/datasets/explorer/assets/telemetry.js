// Metrics, log lines, events and object states.
function metricSection(axis, episode) {
  const lines = episode.metrics;
  const roles = [...new Set(lines.map((line) => line.role))];
  const services = [...new Set(lines.map((line) => line.service))].sort();
  const lanes = h("div");
  const menu = (label, values, chosen) => {
    const made = h("select", { "aria-label": label, on: { change: () => draw() } }, h("option", { value: "" }, `${label}: all`), values.map((value) => h("option", { value }, value)));
    made.value = values.includes(chosen) ? chosen : "";
    return made;
  };
  const role = menu("Role", roles, "cpu"), service = menu("Service", services, "");
  const search = h("input", { type: "search", placeholder: "Metric name …", "aria-label": "Search metrics", on: { input: () => draw() } });
  const moving = h("input", { type: "checkbox", checked: true, on: { change: () => draw() } });
  const count = h("p", { class: "soft", role: "status" });
  let limit = 24;
  function draw() {
    for (const lane of lanes.children) if (lane.follower) axis.unfollow(lane.follower);
    const word = search.value.toLowerCase();
    const chosen = lines.filter((line) => (!role.value || line.role === role.value) && (!service.value || line.service === service.value)
      && line.metric.toLowerCase().includes(word) && (!moving.checked || Array.isArray(line.values)));
    const shown = chosen.slice(0, limit);
    count.replaceChildren(`${plural(chosen.length, "line")}${chosen.length > shown.length ? `, the first ${shown.length} are drawn ` : ""}`,
      chosen.length > shown.length ? h("button", { type: "button", on: { click: () => { limit = 200; draw(); } } }, "Draw more") : "");
    lanes.replaceChildren(...shown.map((line) => {
      const values = Array.isArray(line.values) ? line.values : new Array(axis.steps).fill(line.values);
      const [low, high] = range(values);
      const floor = low > 0 && low < 0.6 * high ? 0 : low;
      return axis.lane({ name: service.value ? line.metric : `${line.service} · ${line.metric}`, title: `${line.service}, ${line.metric}, role ${line.role}`, height: 38,
        draw: () => [axis.drawing(axis.line(values, floor, high, "first")), axis.scale(`${number(high)} ${line.unit}`)],
        value: (step) => `${number(values[step])} ${line.unit}` });
    }));
  }
  draw();
  const choose = (name) => {
    if (!services.includes(name)) { announce(`${name} has no metrics`); return; }
    service.value = name; role.value = ""; search.value = ""; draw();
    document.getElementById("metrics").scrollIntoView({ block: "start" });
    service.focus({ preventScroll: true });
    announce(`Metrics of ${name}`);
  };
  const parts = [h("div", { class: "filters" }, service, role, search, h("label", {}, moving, " only what moves")), count, lanes];
  return { parts, choose };
}

function logSection(axis, logs) {
  const high = highest(logs.levels.error, logs.levels.warning, logs.levels.other);
  const list = h("div", { class: "templates" });
  const search = h("input", { type: "search", placeholder: "Search templates and examples …", "aria-label": "Search log lines", on: { input: () => draw() } });
  const order = h("select", { "aria-label": "Order", on: { change: () => draw() } }, h("option", { value: "interest" }, "Errors, new, changed first"),
    h("option", { value: "lines" }, "Most lines first"), h("option", { value: "first" }, "First seen first"));
  function template(one) {
    const top = highest(one.counts);
    const isNew = one.before === 0;
    const item = h("details", { class: "template" }, h("summary", {}, h("span", { class: "count" }, one.lines.toLocaleString("en")), " ",
      one.level && h("span", { class: `tag ${one.level}` }, one.level), isNew && h("span", { class: "tag new", title: "not in the reference" }, "new"), " ",
      h("b", {}, one.service), " ", h("span", { class: "mono" }, one.text)),
      h("ul", { class: "examples" }, one.examples.map(([time, text]) => h("li", { class: "mono" }, h("span", { class: "soft" }, seconds(time)), " ", text))));
    return h("div", { class: "item" }, item, axis.lane({ name: `first at ${seconds(one.first)}`, height: 22, kind: "thin",
      draw: () => axis.drawing(axis.bars([[one.counts, ["error", "fatal"].includes(one.level) ? "bad" : one.level === "warning" ? "slow" : "ok"]], top)) }));
  }
  function draw() {
    const word = search.value.toLowerCase();
    const rows = logs.templates.filter((one) => `${one.service} ${one.level} ${one.text} ${one.examples.map((example) => example[1]).join(" ")}`.toLowerCase().includes(word));
    if (order.value !== "interest") rows.sort((a, b) => (order.value === "lines" ? b.lines - a.lines : a.first - b.first));
    const shown = rows.slice(0, word ? 150 : list.limit || 12);
    list.replaceChildren(...shown.map(template), ...(rows.length > shown.length
      ? [h("button", { type: "button", on: { click: () => { list.limit = 150; draw(); } } }, `Show all ${rows.length} templates`)] : []));
  }
  draw();
  return [
    axis.lane({ name: "Lines", height: 64, draw: () => [axis.drawing(axis.bars([[logs.levels.error, "bad"], [logs.levels.warning, "slow"], [logs.levels.other, "ok"]], high)), axis.scale(number(high))],
      value: (step) => `${logs.levels.error[step]} errors, ${logs.levels.warning[step]} warnings, ${logs.levels.other[step]} others` }),
    h("p", { class: "key" }, h("i", { class: "bad" }), "error, fatal ", h("i", { class: "slow" }), "warning ", h("i", { class: "ok" }), "others"),
    h("div", { class: "filters" }, search, order),
    logs.left_out > 0 && h("p", { class: "soft" }, `${plural(logs.left_out, "template")} that changed little ${logs.left_out === 1 ? "is" : "are"} left out.`),
    list,
  ];
}

function timedRows(axis, rows, columns, cells, kinds) {
  const shown = rows.slice(0, 300);
  return [
    ...kinds.map(([name, of, colour]) => axis.lane({ name, height: 22, kind: "thin", draw: () => axis.drawing(axis.markers(rows.filter(of).map((row) => row.time), colour)) })),
    h("details", { open: rows.length < 25 }, h("summary", {}, plural(rows.length, "row") + (rows.length > shown.length ? `, the first ${shown.length} are listed` : "")), scrolling(columns, shown.map((row) => [
      h("button", { type: "button", class: "link", on: { click: () => axis.to(row.time / axis.episode.step - 0.5) } }, seconds(row.time)), ...cells(row)]))),
  ];
}
const eventSection = (axis, rows) => timedRows(axis, rows, ["Time", "Type", "Reason", "Object", "Message"],
  (row) => [h("span", { class: `tag ${row.type}` }, row.type), row.reason, `${row.kind} ${row.name}`, row.message + (row.count > 1 ? ` (${row.count} times)` : "")],
  [["Warnings", (row) => row.type === "Warning", "bad"], ["Others", (row) => row.type !== "Warning", "ok"]]);
const objectSection = (axis, rows) => timedRows(axis, rows, ["Time", "Object", "What", "Fields"],
  (row) => [`${row.kind} ${row.name}`, row.what, h("span", { class: "mono" }, row.fields.map(([name, old, now], place) => [place > 0 && h("br"), `${name}: ${old} → ${now}`]))],
  [["Changes", () => true, "ok"]]);

// Failing and slow traces, drawn span by span.
function traceSection(axis, traces) {
  const picture = h("div", { class: "waterfall", "aria-live": "polite" });
  const groups = [["Failing", traces.traces.filter((trace) => trace.failed > 0)], ["Slowest of the others", traces.traces.filter((trace) => trace.failed === 0)]];
  let pressed = null;
  function show(trace, button) {
    if (pressed) pressed.setAttribute("aria-pressed", "false");
    pressed = button;
    button.setAttribute("aria-pressed", "true");
    const total = trace.ms || 1e-9;
    picture.replaceChildren(
      h("p", {}, h("b", {}, milliseconds(trace.ms)), ` from ${seconds(trace.at)} on, ${plural(trace.count, "span")}, ${trace.failed} failed `, h("span", { class: "mono soft" }, trace.id)),
      h("ol", { class: "spans" }, trace.spans.map(([depth, service, operation, kind, peer, begin, length, status, code]) => {
        const failed = status === "error" || code >= 500;
        const text = `${service || "?"} ${operation}${peer && kind === "client" ? ` → ${peer}` : ""}`;
        return h("li", { title: `${text}, ${kind}, ${milliseconds(begin)} to ${milliseconds(begin + length)}, ${status}${code ? ` ${code}` : ""}` },
          h("span", { class: "what", css: { "padding-left": `${Math.min(depth, 12) * 10}px` } }, h("b", {}, service || "?"), ` ${operation}`, peer && kind === "client" && h("span", { class: "soft" }, ` → ${peer}`)),
          h("span", { class: "track" }, h("i", { class: `${failed ? "bad" : kind === "client" ? "pale" : "ok"}`, css: { left: `${Math.min(100, (100 * begin) / total)}%`, width: `${Math.min(100, (100 * length) / total)}%` } })),
          h("span", { class: "took" }, `${failed ? "✗ " : ""}${milliseconds(length)}${code ? ` · ${code}` : ""}`));
      })),
      trace.count > trace.spans.length && h("p", { class: "soft" }, `The first ${trace.spans.length} of ${trace.count} spans are drawn.`) || "");
    axis.to(trace.at / axis.episode.step - 0.5);
  }
  const lists = groups.map(([title, rows]) => h("div", {}, h("h3", {}, title), rows.length === 0 ? h("p", { class: "soft" }, "none") : h("div", { class: "buttons" }, rows.map((trace) => {
    const [, service, operation] = trace.spans[0];
    const button = h("button", { type: "button", "aria-pressed": "false", on: { click: () => show(trace, button) } }, h("b", {}, milliseconds(trace.ms)), ` at ${seconds(trace.at)}`, h("br"), h("span", { class: "soft" }, `${service || "?"} ${operation}`));
    return button;
  }))));
  const all = traces.traces;
  const lanes = [
    axis.lane({ name: "Failing, shown", height: 22, kind: "thin", draw: () => axis.drawing(axis.markers(all.filter((trace) => trace.failed).map((trace) => trace.at), "bad")) }),
    axis.lane({ name: "Slow, shown", height: 22, kind: "thin", draw: () => axis.drawing(axis.markers(all.filter((trace) => !trace.failed).map((trace) => trace.at), "slow")) }),
  ];
  const first = lists.map((list) => list.querySelector("button")).find(Boolean);
  if (first) { const before = axis.step; first.click(); axis.to(before); }
  return [h("p", { class: "soft" }, `${plural(traces.total, "trace")}, ${traces.failing.toLocaleString("en")} with a failed span. Up to 30 of each kind are here.`), lanes, h("div", { class: "two" }, lists), picture];
}
