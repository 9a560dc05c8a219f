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
