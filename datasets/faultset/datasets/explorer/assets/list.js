// The list of episodes, with search and filters.
const faultName = (row) => row.truth.fault || `none (${row.truth.none})`;

function episodeList(state) {
  const { dataset } = state;
  const open = state.truthShown();
  const body = h("tbody");
  const count = h("p", { class: "soft", role: "status" });
  const search = h("input", { type: "search", id: "search", placeholder: open ? "Search ids, faults, targets …" : "Search ids and applications …",
    "aria-label": "Search episodes", value: state.filter.text });
  const choices = [["app", "Application", (row) => row.app]];
  if (open) {
    choices.push(["fault", "Fault", faultName], ["verdict", "Verdict", (row) => row.truth.verdict]);
    choices.push(["target", "Target", (row) => row.truth.targets]);
  }
  const menus = choices.map(([key, label, of]) => {
    const values = [...new Set(dataset.episodes.flatMap(of))].sort();
    const menu = h("select", { "aria-label": label, on: { change: () => { state.filter[key] = menu.value; update(); } } },
      h("option", { value: "" }, `${label}: all`), values.map((value) => h("option", { value }, value)));
    menu.value = values.includes(state.filter[key]) ? state.filter[key] : "";
    return values.length > 1 ? menu : null;
  });
  const columns = ["Episode", "Application", "Start, UTC", "Length", "Log lines", "Spans"];
  if (open) columns.push("Fault", "Target", "Verdict");
  if (state.answered()) columns.push("Your score");

  function row(one) {
    const cells = [
      h("a", { href: `#${encodeURIComponent(one.id)}`, class: "mono" }, one.id), one.app, one.start, seconds(one.seconds),
      (one.rows.logs ?? 0).toLocaleString("en"), (one.rows.spans ?? 0).toLocaleString("en"),
    ];
    if (open) {
      cells.push(h("b", { class: one.truth.fault ? "" : "soft" }, faultName(one)), one.truth.targets.join(", ") || "–");
      cells.push(h("span", { class: `tag ${one.truth.verdict}` }, one.truth.verdict));
    }
    if (state.answered()) cells.push(scoreText(state.answers[one.id]));
    return h("tr", {}, cells.map((cell, place) => h("td", { "data-name": columns[place] }, cell)));
  }
  function update() {
    state.filter.text = search.value;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = dataset.episodes.filter((one) => {
      const text = [one.id, one.app, one.platform, ...(open ? [faultName(one), ...one.truth.targets, one.truth.verdict,
        one.truth.level || "", one.truth.type || ""] : [])].join(" ").toLowerCase();
      return words.every((word) => text.includes(word)) && choices.every(([key, , of]) => !state.filter[key] || [of(one)].flat().includes(state.filter[key]));
    });
    state.order = shown.map((one) => one.id);
    body.replaceChildren(...shown.slice(0, 2000).map(row));
    count.textContent = `${plural(shown.length, "episode")}${shown.length < dataset.episodes.length ? ` of ${dataset.episodes.length}` : ""}`
      + (shown.length > 2000 ? ", the first 2,000 are listed" : "");
  }
  search.addEventListener("input", update);
  update();
  return [
    h("h1", {}, dataset.name, h("small", {}, `version ${dataset.version}`)),
    dataset.synthetic && h("p", { class: "note" }, "The data is synthetic: generated without running services."),
    state.answered() && scoreCard(state),
    ...(dataset.episodes.length || !dataset.recordings.length ? [h("div", { class: "filters" }, search, menus),
      count,
      h("table", { class: "episodes" }, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))), body)] : []),
  ];
}
