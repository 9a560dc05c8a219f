// Answers of methods: a lane per detector with its alarm, and the services that localizers named.
function answerSection(axis, answers, causes) {
  const detectors = answers.filter((one) => one.task === "detection");
  const lanes = detectors.map((one) => axis.lane({ name: one.method, title: `${one.method}, ${one.kind}`, height: 20, kind: "thin",
    draw: () => axis.drawing(axis.markers(one.alarm === null ? [] : [one.alarm], "bad")),
    value: () => one.status !== "ok" ? one.status : one.alarm === null ? "no alarm" : seconds(one.alarm) }));
  const others = answers.filter((one) => one.task !== "detection");
  const given = { detected: "an alarm", oracle: "the onset" };
  const names = (one) => one.status !== "ok" ? one.status : one.task === "rca" ? [one.level, one.type].filter(Boolean).join(", ") || "nothing"
    : one.services.map((name, place) => [place ? ", " : "", causes.has(name) ? h("b", { class: "right" }, name) : name]);
  return [lanes, others.length ? scrolling(["Method", "Task", "Given", "Answer"], others.map((one) => [one.method, one.task, given[one.protocol], names(one)])) : ""];
}
