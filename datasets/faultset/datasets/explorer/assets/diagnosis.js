// Answers of methods: a lane per detector with its alarm, and the services that localizers named.
function answerSection(axis, answers, causes) {
  const detectors = answers.filter((one) => one.task === "detection");
  const lanes = detectors.map((one) => axis.lane({ name: one.method, title: `${one.method}, ${one.kind}`, height: 20, kind: "thin",
    draw: () => axis.drawing(axis.markers(one.alarm === null ? [] : [one.alarm], "bad")),
    value: () => one.status !== "ok" ? one.status : one.alarm === null ? "no alarm" : seconds(one.alarm) }));
  const others = answers.filter((one) => one.task !== "detection");
  const given = { detected: "an alarm", oracle: "the onset", given: "a time" };
  const names = (one) => one.status !== "ok" ? one.status : one.task === "rca" ? [one.level, one.type].filter(Boolean).join(", ") || "nothing"
    : one.services.map((name, place) => [place ? ", " : "", causes.has(name) ? h("b", { class: "right" }, name) : name]);
  return [lanes, others.length ? scrolling(["Method", "Task", "Given", "Answer"], others.map((one) => [one.method, one.task, given[one.protocol], names(one)])) : ""];
}
// Suspects of an incident: a lane with the times of the observations about each, and the observations as text.
function incidentSection(axis, incident) {
  const lanes = incident.suspects.map((one, place) => axis.lane({ name: `${place + 1}. ${one.service}`, height: 20, kind: "thin",
    draw: () => axis.drawing(axis.markers(one.observations.map((item) => item.at), "bad")),
    value: () => one.observations.length ? seconds(one.observations[0].at) : "" }));
  const texts = incident.suspects.flatMap((one) => one.observations.map((item) => [one.service, seconds(item.at), item.text]));
  return [h("p", {}, incident.summary), lanes, texts.length ? scrolling(["Service", "Since", "Observation"], texts) : ""];
}

// Ground truth, and diagnosis without it; answers are scored like those of methods.
function rightNames(truth) {
  return truth.causes.map((cause) => new Set([cause.service, ...cause.accepted]));
}
function scored(answer, truth) {
  const faulty = truth.fault !== null;
  const result = { detection: answer.faulty === faulty ? 1 : 0 };
  if (!faulty) return result;
  const causes = rightNames(truth);
  const hit = (k) => (answer.services.slice(0, k).some((name) => name && causes.some((names) => names.has(name))) ? 1 : 0);
  result.ac1 = hit(1);
  result.ac3 = hit(3);
  if (truth.inject_start !== null && answer.onset !== null) result.onset = Math.abs(answer.onset - truth.inject_start);
  if (truth.level) result.level = answer.level === truth.level ? 1 : 0;
  if (truth.type) result.type = answer.type === truth.type ? 1 : 0;
  return result;
}
function scoreText(answer) {
  if (!answer) return "–";
  const { score } = answer;
  if (score.ac1 === undefined) return score.detection ? "right: no fault" : "a fault where there was none";
  if (!score.detection) return "missed";
  return score.ac1 ? "right service" : score.ac3 ? "among your three" : "another service";
}
function scoreCard(state) {
  const known = new Set(state.dataset.episodes.map((row) => row.id));
  const scores = Object.entries(state.answers).filter(([id]) => known.has(id)).map(([, answer]) => answer.score);
  const mean = (name) => {
    const values = scores.map((score) => score[name]).filter((value) => value !== undefined);
    return values.length ? `${(values.reduce((a, b) => a + b, 0) / values.length).toFixed(2)} (${values.length})` : "–";
  };
  const onsets = scores.map((score) => score.onset).filter((value) => value !== undefined).sort((a, b) => a - b);
  const middle = onsets.length ? (onsets[(onsets.length - 1) >> 1] + onsets[onsets.length >> 1]) / 2 : null;
  return h("section", { class: "card score" }, h("h2", {}, `Your score over ${plural(scores.length, "episode")}`),
    h("dl", { class: "tiles" }, [["Fault or none", mean("detection")], ["AC@1", mean("ac1")], ["AC@3", mean("ac3")], ["System level", mean("level")], ["Fault type", mean("type")],
      ["Median error of the onset", middle === null ? "–" : seconds(middle)]].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("p", { class: "soft" }, "Shares of right answers, with the number of episodes they are over. ", h("button", { type: "button", on: { click: () => state.forget() } }, "Start again")));
}

function diagnosisForm(state, episode, axis) {
  const rows = state.dataset.episodes.map((row) => row.truth);
  const levels = [...new Set(["Hardware", "Operating System", "Virtualization", "Application", ...rows.map((row) => row.level).filter(Boolean)])];
  const types = [...new Set(rows.map((row) => row.type).filter(Boolean))].sort();
  const pick = (label, values, empty) => h("select", { "aria-label": label }, h("option", { value: "" }, empty), values.map((value) => h("option", { value }, value)));
  const faulty = pick("Is there a fault?", ["yes", "no"], "Fault or none?");
  const services = ["First", "Second", "Third"].map((word) => pick(`${word} suspect`, episode.services, `${word} suspect …`));
  const level = pick("System level", levels, "System level …"), type = pick("Fault type", types, "Fault type …");
  const onset = h("input", { type: "number", min: "0", max: episode.seconds, step: "0.1", "aria-label": "Onset in seconds", placeholder: "Onset, s" });
  const problem = h("p", { class: "problem", role: "alert" });
  const here = h("button", { type: "button", on: { click: () => { onset.value = axis.seconds().toFixed(1); } } }, "Onset at the cursor");
  const submit = h("button", { type: "button", class: "main", on: { click: () => {
    if (!faulty.value) { problem.textContent = "Say first whether there is a fault."; faulty.focus(); return; }
    const answer = { faulty: faulty.value === "yes", services: services.map((menu) => menu.value), level: level.value, type: type.value, onset: onset.value === "" ? null : Number(onset.value) };
    if (answer.faulty && !answer.services.some(Boolean)) { problem.textContent = "Name at least one suspect."; services[0].focus(); return; }
    state.answer(episode.id, { ...answer, score: scored(answer, episode.truth) });
  } } }, "Score me");
  return h("section", { class: "card", id: "diagnosis" }, h("h2", {}, "Your diagnosis"), h("div", { class: "filters" }, faulty, services, level, type, onset, here, submit), problem,
    h("p", { class: "soft" }, "The truth is hidden until you answer."));
}
function answerCard(answer, episode) {
  const { score } = answer;
  const mark = (right, text) => h("li", {}, h("b", { class: right ? "right" : "wrong" }, right ? "✓ " : "✗ "), text);
  const truth = episode.truth;
  return h("section", { class: "card score" }, h("h2", {}, "Your diagnosis, scored"), h("ul", { class: "plain" },
    mark(score.detection, answer.faulty ? "You said that there is a fault." : "You said that there is no fault."),
    score.ac1 !== undefined && mark(score.ac3, `Your suspects: ${answer.services.filter(Boolean).join(", ") || "none"}. ${score.ac1 ? "The first is right" : score.ac3 ? "One of them is right" : "None is right"}; the root cause is ${truth.causes.map((cause) => cause.service).join(", ")}.`),
    score.level !== undefined && mark(score.level, `System level: you said ${answer.level || "nothing"}, it is ${truth.level}.`),
    score.type !== undefined && mark(score.type, `Fault type: you said ${answer.type || "nothing"}, it is ${truth.type}.`),
    score.onset !== undefined && h("li", {}, `Your onset is ${seconds(score.onset)} off.`)));
}

function truthCard(episode) {
  const truth = episode.truth;
  const facts = truth.fault === null ? [["Fault", `none, ${truth.none}`], ["Harmless change", truth.parameters]] : [
    ["Fault", truth.fault], ["Root cause", truth.causes.map((cause) => `${cause.kind} ${cause.name}${cause.name === cause.service ? "" : ` of ${cause.service}`}${cause.metric ? `, ${cause.metric}` : ""}`).join("; ")],
    ["Target", truth.targets.join(", ")], ["Level, type", [truth.level, truth.type, truth.category].filter(Boolean).join(", ")], ["Verdict", truth.verdict], ["Parameters", truth.parameters],
    ["Onset", seconds(truth.inject_start)], ["In effect", seconds(truth.effective)], ["Felt by clients", seconds(truth.first_manifest)], ["Recovery begins", seconds(truth.recover_start)]];
  const rollouts = truth.evidence.filter((row) => row.check === "rollout");
  if (rollouts.length) facts.push(["Other rollouts", rollouts.map((row) => `${row.subject}, ${seconds(row.time)}`).join("; ")]);
  return h("section", { class: "card truth-card" }, h("h2", {}, "The truth"), h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("details", {}, h("summary", {}, `Evidence: ${plural(truth.evidence.length, "check")}`), scrolling(["Time", "Check", "Subject", "Passed", "Result"],
      truth.evidence.map((row) => [seconds(row.time), row.check, row.subject, row.passed ? "yes" : "no", row.detail]))));
}
