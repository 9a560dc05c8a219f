// Navigation and keyboard.
const content = document.getElementById("content"), head = document.getElementById("top");
const state = {
  dataset: null, order: [], filter: { text: "" }, truth: true, diagnosing: false, answers: {}, axis: null, contents: new Map(),
  truthShown() { return this.dataset.truth && this.truth && !this.diagnosing; },
  answered() { return this.dataset.truth && this.dataset.episodes.some((row) => this.answers[row.id]); },
  key() { return `faultset/${this.dataset.name}/${this.dataset.version}`; },
  answer(id, answer) { this.answers[id] = answer; stored(this.key(), this.answers); show(); announce(`Scored: ${scoreText(answer)}`); },
  forget() { this.answers = {}; stored(this.key(), this.answers); show(); },
};
// An address is an id, and for a recording optionally a time in seconds: #ID@SECONDS
const address = () => { try { return decodeURIComponent(location.hash.slice(1)).split("@"); } catch { return [""]; } };
const chosen = () => {
  const [id] = address();
  return state.dataset.episodes.find((row) => row.id === id) || state.dataset.recordings.find((row) => row.id === id);
};

function header() {
  const parts = [h("a", { class: "brand", href: "#" }, h("b", {}, "faultset"), " explorer")];
  if (state.dataset.truth) {
    parts.push(h("label", { title: "t" }, h("input", { type: "checkbox", id: "truth", checked: state.truthShown(), disabled: state.diagnosing, on: { change: (event) => { state.truth = event.target.checked; show(true); } } }), " Show the truth"),
      h("button", { type: "button", "aria-pressed": String(state.diagnosing), on: { click: () => { state.diagnosing = !state.diagnosing; show(true); } } }, state.diagnosing ? "Stop diagnosing" : "Diagnose yourself"));
  }
  parts.push(h("details", { class: "keys" }, h("summary", {}, "Keys"), h("ul", { class: "plain" }, [["← →", "move the time"], ["j k", "next, previous episode"], ["t", "show or hide the truth"], ["/", "search"], ["Esc", "all episodes"]]
    .map(([key, what]) => h("li", {}, h("kbd", {}, key), ` ${what}`)))));
  head.replaceChildren(...parts);
}

async function episodeContent(row) {
  if (!state.contents.has(row.id)) {
    const place = state.dataset.episodes.indexOf(row);
    let bytes = embedded(place < 0 ? `recording-${state.dataset.recordings.indexOf(row)}` : `episode-${place}`);
    if (!bytes) {
      const answer = await fetch(`episodes/${encodeURIComponent(row.id)}`);
      if (!answer.ok) throw new Error(await answer.text());
      bytes = await answer.arrayBuffer();
    }
    if (state.contents.size > 8) state.contents.delete(state.contents.keys().next().value);
    state.contents.set(row.id, await inflated(bytes));
  }
  return state.contents.get(row.id);
}

function section(id, title, ...parts) {
  return h("section", { class: "card", id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...parts);
}
const absent = (what) => h("p", { class: "soft" }, `This episode has no ${what}.`);

function episodePage(episode) {
  const root = h("div", { class: "episode" });
  const axis = new Axis(episode, root);
  const answer = state.answers[episode.id];
  const open = state.dataset.truth && (state.truthShown() || (state.diagnosing && answer));
  if (open && episode.truth.inject_start !== null) root.classList.add("truth");
  const causes = new Set(open ? episode.truth.causes.map((cause) => cause.service) : []);
  const order = state.order.includes(episode.id) ? state.order : state.dataset.episodes.map((row) => row.id);
  const place = order.indexOf(episode.id);
  const step = (by, text) => {
    const id = order[place + by];
    return id === undefined ? h("span", { class: "soft" }, text) : h("a", { href: `#${encodeURIComponent(id)}`, id: by < 0 ? "previous" : "next" }, text);
  };
  const slider = h("input", { type: "range", id: "time", min: 0, max: episode.steps - 1, step: 1, "aria-label": "Time in the episode", on: { input: () => axis.to(Number(slider.value)) } });
  const readout = h("output", { for: "time" });
  axis.follow((at) => {
    slider.value = at;
    const text = `${seconds(axis.seconds(at))} of ${seconds(episode.seconds)}`;
    readout.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  });
  const metrics = metricSection(axis, episode);
  const sections = [
    episode.incident && section("incident", "Suspects", incidentSection(axis, episode.incident)),
    section("clients", "Client requests", episode.clients ? clientLanes(axis, episode.clients) : absent("client requests")),
    section("services", "Services", healthLanes(axis, episode.map, metrics.choose, causes), mapKey(causes), serviceMap(axis, episode.map, metrics.choose, causes)),
    episode.answers && section("answers", "Answers of methods", episode.answers.length ? answerSection(axis, episode.answers, causes) : h("p", { class: "soft" }, "No method was evaluated on this episode.")),
    section("metrics", "Metrics", episode.metrics.length ? metrics.parts : absent("metrics")),
    section("logs", "Log lines", episode.logs ? logSection(axis, episode.logs) : absent("log lines")),
    section("traces", "Traces", episode.traces ? traceSection(axis, episode.traces) : absent("traces")),
    section("events", "Events", episode.events.length ? eventSection(axis, episode.events) : absent("events")),
    section("objects", "Object states", episode.objects.length ? objectSection(axis, episode.objects) : absent("changes of object states")),
  ].filter(Boolean);
  root.append(
    h("nav", { class: "steps", "aria-label": "Episodes" }, h("a", { href: "#" }, "All episodes"), step(-1, "← Previous"), step(1, "Next →")),
    h("h1", {}, h("span", { class: "mono" }, episode.id), h("small", {}, `${episode.app} on ${episode.platform}, ${episode.start} UTC`)),
    h("div", { class: "bar" }, h("div", { class: "lane" }, h("div", { class: "label" }, readout), h("div", { class: "plot ruler" }, slider)),
      h("p", { class: "key" }, h("i", { class: "reference" }), "healthy reference ", open && episode.truth.inject_start !== null && [h("i", { class: "fault" }), "fault"],
        ...sections.map((one) => [" ", h("a", { href: "#", on: { click: (event) => { event.preventDefault(); one.scrollIntoView({ block: "start" }); } } }, one.querySelector("h2").textContent)]))),
    open && answer ? answerCard(answer, episode) : "", open ? truthCard(episode) : "",
    state.diagnosing && !answer ? diagnosisForm(state, episode, axis) : "",
    ...sections);
  axis.to(episode.incident ? episode.incident.moment / episode.step : Math.floor(axis.steps / 2));
  state.axis = axis;
  return root;
}

async function show(keep) {
  const top = window.scrollY;
  header();
  const row = chosen();
  state.axis = null;
  document.title = `${row ? `${row.id} – ` : ""}${state.dataset.name} – faultset explorer`;
  if (!row) { content.replaceChildren(...[...episodeList(state), ...recordingList(state)].filter(Boolean)); if (!keep) window.scrollTo(0, 0); return; }
  try {
    const episode = await episodeContent(row);
    if (chosen() === row) content.replaceChildren(state.dataset.recordings.includes(row) ? recordingPage(episode, address()[1]) : episodePage(episode));
  } catch (error) {
    content.replaceChildren(h("p", { class: "problem" }, `Episode ${row.id} cannot be shown: ${error.message}`));
  }
  window.scrollTo(0, keep ? top : 0);
  document.body.dataset.ready = row.id;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
  if (event.key === "Escape") { if (typing) event.target.blur(); else location.hash = ""; return; }
  if (typing) return;
  const click = (id) => document.getElementById(id)?.click();
  if (event.key === "j") click("next");
  else if (event.key === "k") click("previous");
  else if (event.key === "t") click("truth");
  else if (event.key === "/") { const box = document.querySelector("input[type=search]"); if (box) { event.preventDefault(); box.focus(); } }
  else if (state.axis && event.key === "ArrowRight") state.axis.to(state.axis.step + 1);
  else if (state.axis && event.key === "ArrowLeft") state.axis.to(state.axis.step - 1);
});
window.addEventListener("hashchange", () => show());

(async () => {
  state.dataset = await inflated(embedded("dataset"));
  state.answers = stored(state.key()) || {};
  if (state.dataset.episodes.length + state.dataset.recordings.length === 1 && !location.hash) history.replaceState(null, "", `#${encodeURIComponent([...state.dataset.episodes, ...state.dataset.recordings][0].id)}`);
  await show();
})().catch((error) => { content.replaceChildren(h("p", { class: "problem" }, `The data cannot be read: ${error.message}`)); });
