// A recording: a timeline to zoom, with incidents and decoys above the lanes, and the alarms of methods.
const clock = (value) => `${Math.floor(value / 3600)}:${String(Math.floor((value / 60) % 60)).padStart(2, "0")}:${String(Math.floor(value % 60)).padStart(2, "0")}`;

function recordingList(state) {
  const { recordings } = state.dataset;
  if (!recordings.length) return [];
  const columns = ["Recording", "Application", "Start, UTC", "Length"];
  if (state.truthShown()) columns.push("Incidents");
  return [h("table", { class: "episodes", id: "recordings" }, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, recordings.map((row) => h("tr", {}, [h("a", { href: `#${encodeURIComponent(row.id)}`, class: "mono" }, row.id), row.app, row.start, clock(row.seconds),
      ...(state.truthShown() ? [row.incidents] : [])].map((cell, index) => h("td", { "data-name": columns[index] }, cell))))))];
}

function recordingPage(recording, seconds) {
  const root = h("div", { class: "episode recording" });
  const draw = (from, to) => root.replaceChildren(...recordingParts(recording, root, Math.max(0, Math.floor(from)), Math.min(recording.steps, Math.ceil(to)), draw));
  const step = Number(seconds) / recording.step, margin = 600 / recording.step;
  if (seconds !== undefined && step >= 0 && step <= recording.steps) draw(step - margin, step + margin); else draw(0, recording.steps);
  return root;
}

function recordingParts(recording, root, from, to, zoom) {
  if (to - from < 10) to = Math.min(recording.steps, from + 10);
  const truth = state.truthShown() ? recording.truth : null;
  const offset = from * recording.step;
  const axis = new Axis({ steps: to - from, step: recording.step, seconds: (to - from) * recording.step, reference: 0, truth: null }, root);
  const cut = (values) => values.slice(from, to);
  const rectangle = ([start, end], name, title, action) => {
    const left = Math.max(0, start / recording.step - from), right = Math.min(to - from, end / recording.step - from);
    return right <= left ? null : s("rect", { x: left, y: 12, width: Math.max(right - left, (to - from) / 400), height: 76, class: `area ${name}`, on: action && { click: action } }, s("title", {}, title));
  };
  const lane = (name, height, shapes, value) => axis.lane({ name, height, kind: height < 20 ? "thin" : "", value, draw: () => axis.drawing(...shapes.filter(Boolean)) });
  const at = (step) => (from + step) * recording.step;
  const around = ([start, end]) => zoom(start / recording.step - 60, end / recording.step + 60);
  const overlay = truth ? [
    lane("Incidents", 26, truth.incidents.map((one) => rectangle(one.span, one.verdict === "manifest" ? "bad" : "slow", `${one.fault} on ${one.target}, ${one.verdict}`, () => around(one.span))),
      (step) => truth.incidents.filter((one) => at(step) >= one.span[0] && at(step) < one.span[1]).map((one) => `${one.fault} on ${one.target}`).join("; ") || "healthy"),
    lane("Decoys", 16, [axis.markers(truth.decoys.map((one) => one.time - offset).filter((time) => time >= 0), "second")],
      (step) => truth.decoys.filter((one) => Math.abs(one.time - at(step)) < 2 * recording.step).map((one) => one.name).join("; ") || "–"),
    truth.voids.length ? lane("Void", 16, truth.voids.map((one) => rectangle(one.span, "silent", one.detail)), (step) => truth.voids.filter((one) => at(step) >= one.span[0] && at(step) < one.span[1]).map((one) => one.detail).join("; ") || "–") : null,
  ] : [];
  const alarms = (recording.answers || []).map((one) => lane(one.name, 16, [axis.markers(one.alarms.map((time) => time - offset).filter((time) => time >= 0), "first")],
    (step) => (one.alarms.some((time) => Math.abs(time - at(step)) < recording.step) ? "alarm" : "–")));
  const clients = recording.clients && clientLanes(axis, { ...Object.fromEntries(["ok", "failed", "unfinished", "p50", "p95"].map((name) => [name, cut(recording.clients[name])])), endpoints: [] }).slice(0, 3);
  const services = recording.services.map((one) => {
    const ms = cut(one.ms), failed = cut(one.failed), calls = cut(one.calls);
    return axis.lane({ name: one.name, height: 30, draw: () => axis.drawing(axis.line(ms, 0, range(one.ms)[1], "first"), axis.bars([[failed, "bad"]], Math.max(1, ...one.calls))[0]),
      value: (step) => `${milliseconds(ms[step])}, ${failed[step] || 0} of ${calls[step] || 0} failed` });
  });
  const metrics = recording.metrics.map((one) => {
    const values = cut(one.values);
    return axis.lane({ name: one.name, height: 30, draw: () => axis.drawing(axis.line(values, ...range(one.values), "first")), value: (step) => number(values[step]) });
  });
  const slider = h("input", { type: "range", id: "time", min: 0, max: to - from - 1, step: 1, "aria-label": "Time in the recording", on: { input: () => axis.to(Number(slider.value)) } });
  const readout = h("output", { for: "time" });
  axis.follow((step) => { slider.value = step; readout.textContent = `${clock(at(step))} of ${clock(recording.seconds)}`; });
  const middle = () => from + axis.step, width = to - from;
  const button = (text, action) => h("button", { type: "button", on: { click: action } }, text);
  state.axis = axis;
  const parts = [
    h("nav", { class: "steps", "aria-label": "Recordings" }, h("a", { href: "#" }, "All episodes and recordings")),
    h("h1", {}, h("span", { class: "mono" }, recording.id), h("small", {}, `${recording.app} on ${recording.platform}, ${recording.start} UTC; ${recording.sampling}`)),
    h("div", { class: "bar" }, h("div", { class: "lane" }, h("div", { class: "label" }, readout), h("div", { class: "plot ruler" }, slider)),
      h("p", { class: "key", id: "zoom" }, button("Zoom in", () => zoom(middle() - width / 4, middle() + width / 4)), " ", button("Zoom out", () => zoom(from - width / 2, to + width / 2)), " ",
        button("← Earlier", () => zoom(Math.max(0, from - width / 2), Math.max(width, to - width / 2))), " ", button("Later →", () => zoom(Math.min(recording.steps - width, from + width / 2), to + width / 2)), " ",
        button("Whole recording", () => zoom(0, recording.steps)), ` ${clock(from * recording.step)} to ${clock(to * recording.step)}`)),
    section("truth-lanes", "Incidents and decoys", truth ? overlay.filter(Boolean) : h("p", { class: "soft" }, "The truth is hidden.")),
    recording.answers && section("answers", "Alarms of methods", alarms.length ? alarms : h("p", { class: "soft" }, "No method was evaluated on this recording.")),
    clients && section("clients", "Client requests", clients),
    services.length ? section("services", "Services: latency and failed calls", services) : null,
    metrics.length ? section("metrics", "Metrics", metrics) : null,
    truth && truth.incidents.length ? section("incident-list", "Incidents", h("table", {}, h("tbody", {}, truth.incidents.map((one) => h("tr", {},
      h("td", {}, h("button", { class: "link", type: "button", on: { click: () => around(one.span) } }, clock(one.span[0]))), h("td", {}, h("b", {}, one.fault)), h("td", {}, one.target),
      h("td", {}, h("span", { class: `tag ${one.verdict}` }, one.verdict)), h("td", {}, clock(one.span[1] - one.span[0]))))))) : null,
  ].filter(Boolean);
  axis.to(Math.floor(axis.steps / 2));
  return parts;
}
