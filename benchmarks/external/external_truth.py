"""Our localizers beside published results, on data that others have made and labelled.

    python benchmarks/external/external_truth.py nezha PATH [--out DIR] [--workers N] [--write]
    python benchmarks/external/external_truth.py petshop PATH [--out DIR] [--workers N] [--write]

PATH is the source's folder or archive. It is imported with `faultset dataset import`, evaluated with
`faultset evaluate`, and the table is printed; `--write` also puts it into docs/results/comparisons.md, between its
markers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from petshop_traversal import traversal_answers

from faultset.baselines.api.registry import get_baseline
from faultset.datasets import Label
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.importer import import_dataset
from faultset.evaluators.results.rows import ResultRow, read_rows
from faultset.evaluators.scoring.rankings import score_ranking
from faultset.evaluators.statistics.intervals import Estimate, clustered_mean

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "comparisons.md"
NEZHA_DEPTHS = (1, 3, 5)
NEZHA_PUBLISHED: tuple[tuple[str, tuple[float, float, float]], ...] = (
    ("MicroScope", (17.78, 26.67, 35.56)),
    ("MicroRCA", (20.0, 31.11, 44.44)),
    ("SBLD", (15.56, 22.22, 24.44)),
    ("LogFaultFlagger", (17.78, 24.44, 24.44)),
    ("MicroRank", (15.56, 24.44, 35.56)),
    ("TraceAnomaly", (13.33, 28.89, 33.33)),
    ("PDiagnose", (8.89, 13.33, 22.22)),
    ("Nezha", (86.67, 97.78, 97.78)),
)
"""Train Ticket, both days, 45 faults; Yu et al., FSE 2023."""
PETSHOP_PUBLISHED: Mapping[tuple[str, str], tuple[int, float, float, float]] = {
    ("low_traffic", "latency"): (14, 0.571, 0.571, 0.167),
    ("low_traffic", "availability"): (12, 0.833, 1.0, 1.0),
    ("high_traffic", "latency"): (14, 0.571, 0.786, 0.333),
    ("high_traffic", "availability"): (12, 0.667, 1.0, 1.0),
    ("temporal_traffic", "latency"): (8, 1.0, 1.0, 0.6),
    ("temporal_traffic", "availability"): (8, 0.75, 1.0, 1.0),
}
"""Scenario and metric -> issues, top-1, top-3, specificity of the traversal that comes with the data."""


REBUILT = "traversal *(rebuilt, told node, metric and all normal rows)*"
Hits = Mapping[int, float]
"""How many of the first k are right, by k."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one of our methods reached."""

    baseline: str
    cells: tuple[str, ...]
    order: tuple[float, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=["nezha", "petshop"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the dataset and the results; a temporary one by default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results/comparisons.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        dataset, rows = answered(options.source, options.path, out, options.workers)
        table = TABLES[options.source](dataset, rows, options.path)
    print(table)
    if options.write:
        write_between(DOCUMENT, options.source, table)


def answered(source: str, path: Path, out: Path, workers: int) -> tuple[Dataset, list[ResultRow]]:
    """Import and evaluate by the ordinary commands; return the dataset and the result rows."""
    from faultset.evaluators.cli.evaluate import evaluate

    folder, results = out / source, out / f"{source}-results"
    import_dataset(source, path, folder, workers=workers)
    arguments = ["--tasks", "localization" if source == "nezha" else "localization,detection"]
    arguments += ["--protocol", "oracle" if source == "nezha" else "both", "--thresholds", "reference"]
    evaluate.main([str(folder), *arguments, "--out", str(results), "--workers", str(workers)], standalone_mode=False)
    return open_dataset(folder), read_rows(results / "results.parquet")


def nezha_table(dataset: Dataset, rows: Sequence[ResultRow], _: Path) -> str:
    """Return AS@1, 3, 5 of published methods and of ours, with intervals over clusters."""
    told = [row for row in rows if row.task == "localization" and row.protocol == "oracle" and row.truth.faulty]
    lines = []
    for name, answers in _by_baseline(told).items():
        keys = [row.truth.cluster for row in answers]
        hits = {k: [_chance(row, k) for row in answers] for k in NEZHA_DEPTHS}
        estimates = [clustered_mean(hits[k], keys) for k in NEZHA_DEPTHS]
        best = sum(_rank_with_best_tie(row) == 1 for row in answers) / len(answers)
        cells = (*(_percent(estimate) for estimate in estimates), f"{100 * best:.1f}", _episodes(answers))
        lines.append(Line(baseline=name, cells=cells, order=tuple(-estimate.value for estimate in estimates)))
    clusters = len({row.truth.cluster for row in told})
    days = sorted({str(dataset.label(e).parameters["inject_time"])[:10] for e in dataset.episodes})
    head = ("method", "AS@1 %", "AS@3 %", "AS@5 %", "AS@1, best tie %", "faults")
    published = [(f"{name} *(published)*", *(f"{v:.1f}" for v in values), "", "45") for name, values in NEZHA_PUBLISHED]
    return "\n".join([
        _markdown(head, published),
        "",
        f"Ours on {', '.join(days)}: {len(dataset.episodes)} faults in {clusters} clusters of one fault in one "
        "service; intervals are 95 %, from what clusters differ by.",
        "",
        _markdown(head, [(f"`{line.baseline}`", *line.cells) for line in _best_first(lines)]),
    ])  # fmt: skip


def petshop_table(dataset: Dataset, rows: Sequence[ResultRow], path: Path) -> str:
    """Return top-1 and top-3 by scenario and metric, and how often detectors are silent where nothing is wrong.

    The traversal that comes with the data stands there twice: as published, over more issues, and rebuilt, over those
    that are here and have normal metrics.
    """
    labels = {episode: dataset.label(episode) for episode in dataset.episodes}

    def group(row: ResultRow) -> tuple[str, str]:
        label = labels[row.truth.episode]
        return _scenario(label), label.parameters["target"]["metric"]

    rows, blind = _with_metrics(rows)
    faulty = [row for row in rows if row.task == "localization" and row.truth.faulty]
    groups = sorted({group(row) for row in faulty}, key=lambda g: (list(PETSHOP_PUBLISHED).index(g), g))
    rebuilt = _rebuilt(path)
    parts = []
    for protocol, words in (
        ("oracle", "told the time of the issue"),
        ("detected", f"told the alarm of {_alarm(faulty)}"),
    ):
        lines = []
        for name, answers in _by_baseline([row for row in faulty if row.protocol == protocol]).items():
            cells, values = [], []
            for wanted in groups:
                here = [row for row in answers if group(row) == wanted]
                one, three = (sum(_chance(row, k) for row in here) / len(here) for k in (1, 3))
                cells.append(f"{one:.2f} / {three:.2f}")
            for k in (1, 3):
                estimate = clustered_mean([_chance(r, k) for r in answers], [r.truth.cluster for r in answers])
                cells.append(_percent(estimate))
                values.append(-estimate.value)
            empty = sum(not row.ranking for row in answers) / len(answers)
            lines.append(Line(baseline=name, cells=(*cells, f"{empty:.2f}"), order=tuple(values)))
        counts = [_episodes([row for row in faulty if group(row) == wanted]) for wanted in groups]
        named = [f"{scenario} {metric} ({n})" for (scenario, metric), n in zip(groups, counts, strict=True)]
        head = ("method", *named, "top-1 %", "top-3 %", "empty")
        published = ("traversal *(published, all issues)*", *(_published(g) for g in groups), "", "", "")
        theirs = [published, _rebuilt_line(rebuilt, groups)] if protocol == "oracle" else [published]
        placed = _told_the_place(faulty) if protocol == "oracle" else set()
        body = [*theirs, *((_named(line.baseline, placed), *line.cells) for line in _best_first(lines))]
        parts += [f"**{words}** (top-1 / top-3)", "", _markdown(head, body), ""]
    told = [row for row in faulty if row.protocol == "oracle" and group(row)[0] in {g for g, _ in rebuilt}]
    missing = f"Left out, because they read no metrics and this source has nothing else: {blind}."
    return "\n".join([*parts, same_issues(rebuilt, told), "", specificity(rows, labels), "", missing])


def _told_the_place(rows: Sequence[ResultRow]) -> set[str]:
    return {row.baseline for row in rows if "alarm_place" in row.needs}


def _named(baseline: str, placed: set[str]) -> str:
    return f"`{baseline}` *(told node and metric)*" if baseline in placed else f"`{baseline}`"


def _alarm(rows: Sequence[ResultRow]) -> str:
    """Name the detector whose alarm localizers were given, and count the issues in which it raised none."""
    given = [row for row in rows if row.protocol == "detected"]
    (detector,) = {row.alarm_source for row in given}
    silent = {row.truth.episode for row in given if row.given_alarm_ns is None}
    return f"`{detector}`, which raises none in {len(silent)} of {_episodes(given)} issues"


def same_issues(rebuilt: Mapping[tuple[str, str], Sequence[Hits]], rows: Sequence[ResultRow]) -> str:
    """Return top-1 and top-3 of the rebuilt traversal and of ours over the issues that both were asked about."""
    issues = [hits for group in rebuilt.values() for hits in group]
    lines = [(REBUILT, *(_share(sum(hits[k] for hits in issues) / len(issues)) for k in (1, 3)), str(len(issues)))]
    for name, answers in _by_baseline(rows).items():
        means = [sum(_chance(row, k) for row in answers) / len(answers) for k in (1, 3)]
        lines.append((_named(name, _told_the_place(rows)), *map(_share, means), _episodes(answers)))
    ordered = sorted(lines, key=lambda line: (-float(line[1]), -float(line[2]), line[0]))
    table = _markdown(("method", "top-1 %", "top-3 %", "issues"), ordered)
    return f"**the same issues**, those with normal metrics, told their time\n\n{table}"


def _with_metrics(rows: Sequence[ResultRow]) -> tuple[list[ResultRow], str]:
    """Return the rows of methods that can say anything here, and the names of the others."""
    read = {name: get_baseline(name).tables for name in {row.baseline for row in rows}}
    blind = {name for name, tables in read.items() if tables and "metrics" not in tables}
    return [row for row in rows if row.baseline not in blind], ", ".join(f"`{name}`" for name in sorted(blind))


def _rebuilt(path: Path) -> dict[tuple[str, str], list[Hits]]:
    """Ask the traversal that comes with the data about every issue with normal metrics; equal scores by expectation."""
    found: dict[tuple[str, str], list[Hits]] = {}
    for (issue, metric), (scores, cause) in traversal_answers(unpack(path)).items():
        # infinite scores are equal, and larger than any other
        ranking = {name: min(score, 1e300) for name, score in scores.items()}
        score = score_ranking(ranking, [frozenset({cause})], sorted({*ranking, cause}))
        named = {k: score.hit(k) if cause in ranking else 0.0 for k in (1, 3)}
        found.setdefault((issue.partition("/")[0].rstrip("0123456789"), metric), []).append(named)
    return found


def _rebuilt_line(rebuilt: Mapping[tuple[str, str], Sequence[Hits]], groups: Sequence[tuple[str, str]]) -> list[str]:
    cells = []
    for group in groups:
        here = rebuilt.get(group, ())
        one, three = (sum(hits[k] for hits in here) / len(here) if here else None for k in (1, 3))
        cells.append("-" if one is None or three is None else f"{one:.2f} / {three:.2f}")
    return [REBUILT, *cells, "", "", ""]


def _share(value: float) -> str:
    return f"{100 * value:.1f}"


def specificity(rows: Sequence[ResultRow], labels: Mapping[str, Label]) -> str:
    """Return how often each detector is silent on stretches of normal metrics, and how often it finds an issue."""
    lines = []
    for name, answers in _by_baseline([row for row in rows if row.task == "detection"]).items():
        calm = [row for row in answers if not row.truth.faulty]
        ill = [row for row in answers if row.truth.faulty]
        quiet = clustered_mean(
            [float(row.alarm_ns is None) for row in calm], [_scenario(labels[r.episode]) for r in calm]
        )
        found = clustered_mean([float(row.alarm_ns is not None) for row in ill], [row.truth.cluster for row in ill])
        cells = (_percent(quiet), _episodes(calm), _percent(found), _episodes(ill))
        lines.append(Line(baseline=name, cells=cells, order=(-(quiet.value + found.value), -quiet.value)))
    head = ("detector", "silent without an issue %", "stretches", "alarms with an issue %", "issues")
    body = [(f"`{line.baseline}`", *line.cells) for line in _best_first(lines)]
    return "**Specificity**: who decides whether there is an issue at all\n\n" + _markdown(head, body)


Table = Callable[[Dataset, Sequence[ResultRow], Path], str]
TABLES: dict[str, Table] = {"nezha": nezha_table, "petshop": petshop_table}


def write_between(document: Path, name: str, table: str) -> None:
    """Replace what stands between the markers of a table."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{document} has no markers {begin} and {end}")
    document.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", encoding="utf-8")


def _chance(row: ResultRow, k: int) -> float:
    causes = [frozenset(names) for names in row.truth.causes]
    return score_ranking(row.ranking, causes, row.truth.candidates).hit(k)


def _rank_with_best_tie(row: ResultRow) -> int | None:
    """Return the rank when equal scores share the best one and count once, as the published code counts."""
    wanted = {name for names in row.truth.causes for name in names}
    levels = sorted(set(row.ranking.values()), reverse=True)
    ranks = [levels.index(score) + 1 for name, score in row.ranking.items() if name in wanted]
    return min(ranks, default=None)


def _by_baseline(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    found: dict[str, list[ResultRow]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        found.setdefault(row.baseline, []).append(row)
    return found


def _episodes(rows: Sequence[ResultRow]) -> str:
    """Count episodes; methods that draw have several rows for each."""
    return str(len({row.truth.episode for row in rows}))


def _best_first(lines: Sequence[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: (line.order, line.baseline))


def _scenario(label: Label) -> str:
    return str(label.workload["name"]).rstrip("0123456789")


def _published(group: tuple[str, str]) -> str:
    issues, one, three, _ = PETSHOP_PUBLISHED[group]
    return f"{one:.2f} / {three:.2f} of {issues}"


def _percent(estimate: Estimate) -> str:
    value = f"{100 * estimate.value:.1f}"
    return f"{value} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]" if estimate.interval_known else value


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *body])


if __name__ == "__main__":
    main()
