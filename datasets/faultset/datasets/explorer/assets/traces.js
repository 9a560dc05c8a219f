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
