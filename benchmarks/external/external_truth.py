"""Compare our localizers with published results, on data that others collected and labelled.

    python benchmarks/external/external_truth.py nezha PATH [--out DIR] [--workers N] [--write]
    python benchmarks/external/external_truth.py petshop PATH [--out DIR] [--workers N] [--write]

PATH is the source's folder or archive. The script imports it with `faultset dataset import`, runs `faultset evaluate`,
and prints the table; `--write` also puts it into docs/results/comparisons.md, between its markers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from petshop_traversal import traversal_answers
from published_tables import read_published

from faultset.baselines.registry import get_baseline, list_baselines
from faultset.datasets import Label
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.importer import import_dataset
from faultset.evaluators.results.rows import ResultRow, read_rows
from faultset.evaluators.scoring.intervals import Estimate, clustered_mean
from faultset.evaluators.scoring.localization import score_ranking

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "comparisons.md"
NEZHA_DEPTHS = (1, 3, 5)
PETSHOP_PUBLISHED: Mapping[tuple[str, str], tuple[int, float, float, float]] = {
    ("low_traffic", "latency"): (14, 0.571, 0.571, 0.167),
    ("low_traffic", "availability"): (12, 0.833, 1.0, 1.0),
    ("high_traffic", "latency"): (14, 0.571, 0.786, 0.333),
    ("high_traffic", "availability"): (12, 0.667, 1.0, 1.0),
    ("temporal_traffic", "latency"): (8, 1.0, 1.0, 0.6),
    ("temporal_traffic", "availability"): (8, 0.75, 1.0, 1.0),
}
"""Scenario and metric -> issues, top-1, top-3, specificity of the traversal that comes with the data."""


REBUILT = "traversal *(rebuilt)*"
Hits = Mapping[int, float]
"""Number of right answers among the first k, by k."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Scores of one of our methods."""

    baseline: str
    cells: tuple[str, ...]
    order: tuple[float, ...]
    answered: bool = True
    """Whether the method ranked any service in any episode."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=["nezha", "petshop"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the dataset and the results; a temporary one by default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the table into docs/results/comparisons.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        dataset, rows = evaluate_source(options.source, options.path, out, options.workers)
        table = TABLES[options.source](dataset, rows, options.path)
    print(table)
    if options.write:
        write_between(DOCUMENT, options.source, table)


def evaluate_source(source: str, path: Path, out: Path, workers: int) -> tuple[Dataset, list[ResultRow]]:
    """Import and evaluate by the ordinary commands; return the dataset and the result rows."""
    from faultset.evaluators.cli.evaluate import evaluate

    folder, results = out / source, out / f"{source}-results"
    import_dataset(source, path, folder, workers=workers)
    localizers = [name for name, spec in list_baselines().items() if spec.task == "localization" and not spec.extra]
    arguments = ["--tasks", "localization", "--baselines", ",".join(localizers)]
    arguments += ["--protocol", "oracle" if source == "nezha" else "both", "--thresholds", "reference"]
    evaluate.main([str(folder), *arguments, "--out", str(results), "--workers", str(workers)], standalone_mode=False)
    return open_dataset(folder), read_rows(results / "results.parquet")


def nezha_table(dataset: Dataset, rows: Sequence[ResultRow], _: Path) -> str:
    """Return AS@1, 3, 5 of published methods and of ours, with intervals over clusters."""
    given_onset = [row for row in rows if row.task == "localization" and row.protocol == "oracle" and row.truth.faulty]
    lines = []
    for name, answers in _by_baseline(given_onset).items():
        keys = [row.truth.cluster for row in answers]
        hits = {k: [_chance(row, k) for row in answers] for k in NEZHA_DEPTHS}
        estimates = [clustered_mean(hits[k], keys) for k in NEZHA_DEPTHS]
        best = sum(_rank_with_best_tie(row) == 1 for row in answers) / len(answers)
        cells = (_percent(estimates[0]), *(_share(estimate.value) for estimate in estimates[1:]), f"{100 * best:.1f}")
        lines.append(_build_line(f"`{name}`", cells, estimates, answers))
    clusters = len({row.truth.cluster for row in given_onset})
    days = sorted({str(dataset.label(e).parameters["inject_time"])[:10] for e in dataset.episodes})
    head = ("method", "AS@1 %", "AS@3 %", "AS@5 %", "AS@1, best tie %")
    published = [(f"{name} *(published)*", *map(_share, values), "") for name, values in _nezha_paper()]
    return "\n".join([
        "Published, 45 faults of two days:",
        "",
        _markdown(head, published),
        "",
        f"Ours on {', '.join(days)}: {len(dataset.episodes)} faults in {clusters} clusters (fault, service).",
        "",
        _ranked(head, lines),
    ])  # fmt: skip


def _nezha_paper() -> list[tuple[str, list[float]]]:
    """Return each method's AS@1, 3 and 5 on Train Ticket, both days, 45 faults (Yu et al., FSE 2023)."""
    methods: dict[str, list[float]] = {}
    for row in read_published("nezha", "Train Ticket"):
        if row.source.startswith("Yu et al."):
            methods.setdefault(row.method, []).append(row.value)
    return list(methods.items())


def petshop_table(dataset: Dataset, rows: Sequence[ResultRow], path: Path) -> str:
    """Return top-1 and top-3 of the published traversal and of the methods that need metrics only."""
    labels = {episode: dataset.label(episode) for episode in dataset.episodes}
    faulty = [row for row in rows if row.task == "localization" and row.truth.faulty and _reads_metrics(row.baseline)]
    rebuilt = _rebuilt(path)
    tables = traversal_table(rebuilt), localization_table(rebuilt, faulty, labels)
    return "\n\n".join(tables)


def traversal_table(rebuilt: Mapping[tuple[str, str], Sequence[Hits]]) -> str:
    """Return scores of the data's own traversal, as published and as rebuilt."""
    body = []
    for group, (issues, top_1, top_3, _) in PETSHOP_PUBLISHED.items():
        hits = rebuilt.get(group, ())
        means = [f"{sum(hit[k] for hit in hits) / len(hits):.2f}" for k in (1, 3)] if hits else ["", ""]
        body.append((" ".join(group), str(issues), f"{top_1:.2f}", f"{top_3:.2f}", str(len(hits)), *means))
    head = ("scenario", "published issues", "top-1", "top-3", "rebuilt on", "top-1", "top-3")
    return f"**Traversal of the data's authors**, given node, metric and all normal rows\n\n{_markdown(head, body)}"


def localization_table(
    rebuilt: Mapping[tuple[str, str], Sequence[Hits]], faulty: Sequence[ResultRow], labels: Mapping[str, Label]
) -> str:
    """Return top-1 and top-3 of our localizers by protocol, and on the issues of the rebuilt traversal."""
    by_protocol = {
        protocol: _by_baseline([row for row in faulty if row.protocol == protocol])
        for protocol in ("oracle", "detected")
    }
    issues = [hits for group in rebuilt.values() for hits in group]
    placed = {row.baseline for row in faulty if "alarm_location" in row.needs}
    lines = [
        Line(
            baseline=REBUILT,
            cells=("", "", "", "", *(_share(sum(hits[k] for hits in issues) / len(issues)) for k in (1, 3))),
            order=(float("-inf"),),
        )
    ]
    for name, answers in by_protocol["oracle"].items():
        estimates = [
            clustered_mean([_chance(row, k) for row in answers], [row.truth.cluster for row in answers]) for k in (1, 3)
        ]
        same = [row for row in answers if _scenario(labels[row.truth.episode]) in {scenario for scenario, _ in rebuilt}]
        cells = (
            _percent(estimates[0]),
            _share(estimates[1].value),
            *(_share(_mean_hit(by_protocol["detected"][name], k)) for k in (1, 3)),
            *(_share(_mean_hit(same, k)) for k in (1, 3)),
        )
        title = f"`{name}` *(given node and metric)*" if name in placed else f"`{name}`"
        lines.append(_build_line(title, cells, estimates, answers))
    alarm = _alarm([row for row in faulty if row.protocol == "detected"])
    head = ("method", "onset: top-1 %", "top-3 %", "alarm: top-1 %", "top-3 %", "same issues: top-1 %", "top-3 %")
    return f"**Ours**, given the onset and given the alarm of {alarm}\n\n{_ranked(head, lines)}"


def _build_line(
    title: str, cells: tuple[str, ...], estimates: Sequence[Estimate], answers: Sequence[ResultRow]
) -> Line:
    return Line(
        baseline=title,
        cells=cells,
        order=tuple(-estimate.value for estimate in estimates),
        answered=any(row.ranking for row in answers),
    )


def _mean_hit(rows: Sequence[ResultRow], k: int) -> float:
    return sum(_chance(row, k) for row in rows) / len(rows)


def _alarm(rows: Sequence[ResultRow]) -> str:
    """Name the detector whose alarm localizers got, and count the issues in which it raised none."""
    (detector,) = {row.alarm_source for row in rows}
    silent = {row.truth.episode for row in rows if row.given_alarm_ns is None}
    return f"`{detector}`, which raises none in {len(silent)} of {_episodes(rows)} issues"


def _reads_metrics(baseline: str) -> bool:
    """Return whether a method reads metrics, or no table at all, as some controls."""
    tables = get_baseline(baseline).tables
    return not tables or "metrics" in tables


def _rebuilt(path: Path) -> dict[tuple[str, str], list[Hits]]:
    """Run the rebuilt traversal on all issues with normal metrics; average over equal scores."""
    hits: dict[tuple[str, str], list[Hits]] = {}
    for (issue, metric), (scores, cause) in traversal_answers(unpack(path)).items():
        # infinite scores are equal, and larger than any other
        ranking = {name: min(score, 1e300) for name, score in scores.items()}
        score = score_ranking(ranking, [frozenset({cause})], sorted({*ranking, cause}))
        named = {k: score.hit(k) if cause in ranking else 0.0 for k in (1, 3)}
        hits.setdefault((issue.partition("/")[0].rstrip("0123456789"), metric), []).append(named)
    return hits


def _share(value: float) -> str:
    return f"{100 * value:.1f}"


Table = Callable[[Dataset, Sequence[ResultRow], Path], str]
TABLES: dict[str, Table] = {"nezha": nezha_table, "petshop": petshop_table}


def write_between(document: Path, name: str, table: str) -> None:
    """Replace the text between the markers of a table."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, separator, after = rest.partition(end)
    if not separator:
        raise SystemExit(f"{document} has no markers {begin} and {end}")
    document.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", encoding="utf-8")


def _chance(row: ResultRow, k: int) -> float:
    causes = [frozenset(names) for names in row.truth.causes]
    return score_ranking(row.ranking, causes, row.truth.candidates).hit(k)


def _rank_with_best_tie(row: ResultRow) -> int | None:
    """Return the best rank of a cause if services with equal scores share one rank, as in the published code."""
    causes = {name for names in row.truth.causes for name in names}
    levels = sorted(set(row.ranking.values()), reverse=True)
    ranks = [levels.index(score) + 1 for name, score in row.ranking.items() if name in causes]
    return min(ranks, default=None)


def _by_baseline(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    groups: dict[str, list[ResultRow]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        groups.setdefault(row.baseline, []).append(row)
    return groups


def _episodes(rows: Sequence[ResultRow]) -> str:
    """Count episodes; methods that use random numbers have several rows for each."""
    return str(len({row.truth.episode for row in rows}))


def _best_first(lines: Sequence[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: (line.order, line.baseline))


def _ranked(head: Sequence[str], lines: Sequence[Line]) -> str:
    """Return the methods that are ever right, best first, and the names of the others."""
    right = [line for line in _best_first(lines) if line.order[0] < 0]
    wrong = sorted(line.baseline for line in lines if line.order[0] == 0 and line.answered)
    silent = sorted(line.baseline for line in lines if not line.answered)
    table = _markdown(head, [(line.baseline, *line.cells) for line in right])
    names = {"Never right": wrong, "Without any answer": silent}
    return f"{table}\n\n" + " ".join(f"{title}: {', '.join(group)}." for title, group in names.items() if group)


def _scenario(label: Label) -> str:
    return str(label.workload["name"]).rstrip("0123456789")


def _percent(estimate: Estimate) -> str:
    value = f"{100 * estimate.value:.1f}"
    return f"{value} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]" if estimate.interval_known else value


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *body])


if __name__ == "__main__":
    main()
