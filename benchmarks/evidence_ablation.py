"""Effect of each source of evidence on `combined-evidence`.

    python benchmarks/evidence_ablation.py datasets/core-2 [--out FOLDER] [--write]

The script evaluates the method with the true onset and at the alarm of `trace-errors`, repeats its answers without one
source in this process, and prints AC@1 and the paired differences to the whole method over clusters (Holm over the
sources). `--out` stores the evaluation and resumes an interrupted one. `--write` puts the table into
evidence_ablation.md, which docs/results/sensitivity.md shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from faultset.baselines.methods.localization import combined_evidence
from faultset.baselines.methods.localization.combined_evidence import CombinedEvidence
from faultset.core.output import report_progress
from faultset.datasets import open_dataset
from faultset.datasets.dataset import Dataset
from faultset.datasets.views import EpisodeView
from faultset.evaluators import Evaluation, evaluate
from faultset.evaluators.leaderboards.records import HEADLINE
from faultset.evaluators.leaderboards.texts import TextTable, format_p
from faultset.evaluators.recordings.cut_episodes import cut_recordings
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.localization import score_ranking
from faultset.evaluators.scoring.paired_tests import holm, paired_difference

PAGE = Path(__file__).with_suffix(".md")
METHOD = "combined-evidence"
ROLLOUTS = "recognition of rollouts"
SOURCES = {
    "metrics": "metric_evidence",
    "log lines": "log_evidence",
    "failed calls": "_collect_failed_calls",
    "patterns of requests": "_collect_request_evidence",
    "object states": "_collect_object_evidence",
    ROLLOUTS: "successful_rollouts",
    "explanation by calls": "read_call_graph",
}
"""Source -> function of the method's module that reads it."""
WHOLE = "nothing"
PROTOCOLS = {"oracle": "true onset", "detected": "at the alarm"}
Function = Callable[..., Any]


def localize_without_sources(view: EpisodeView, alarm_ns: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the scores of the whole method and without each source; every source is read once."""
    memory: dict[tuple[str, bool], Any] = {}

    def remember(name: str, function: Function) -> Function:
        def remembered(*arguments: Any) -> Any:
            # the evidence may depend on the rollouts, which one of the copies does not recognise
            key = (name, arguments[-1] == {})
            if key not in memory:
                memory[key] = function(*arguments)
            return memory[key]

        return remembered

    names = [*SOURCES.values(), "read_call_series", "_list_observed_services"]
    readers = {name: remember(name, getattr(combined_evidence, name)) for name in names}
    for source in (WHOLE, *SOURCES):
        nothing: Any = {} if source == ROLLOUTS else []
        missing = {} if source == WHOLE else {SOURCES[source]: lambda *_, nothing=nothing: nothing}
        with replace_functions(readers | missing):
            yield source, dict(CombinedEvidence().localize(view, alarm_ns).scores)


@contextmanager
def replace_functions(functions: dict[str, Function]) -> Iterator[None]:
    """Replace functions of the method's module."""
    with ExitStack() as stack:
        for name, function in functions.items():
            stack.enter_context(patch.object(combined_evidence, name, function))
        yield


def score_row(row: ResultRow, episodes: Dataset) -> dict[str, float]:
    """Return AC@1 of the whole method and without each source; 0 without an alarm."""
    if row.given_alarm_ns is None:
        return dict.fromkeys((WHOLE, *SOURCES), 0.0)
    causes = [frozenset(names) for names in row.truth.causes]
    answers = localize_without_sources(episodes.view(row.episode), row.given_alarm_ns)
    return {source: score_ranking(scores, causes, row.truth.candidates).ac(1) for source, scores in answers}


def score_protocol(evaluation: Evaluation, protocol: str, episodes: Dataset) -> dict[str, list[str]]:
    """Return AC@1 and the difference to the whole method for each source."""
    values = evaluation.episode_values("localization")
    chosen = values[(values["protocol"] == protocol) & (values["verdict"] == HEADLINE) & (values["metric"] == "ac1")]
    scored = set(chosen["episode"])
    rows = [r for r in evaluation.rows if (r.baseline, r.protocol) == (METHOD, protocol) and r.episode in scored]
    scores: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        for source, value in score_row(row, episodes).items():
            scores[source].append(value)
    clusters = [row.truth.cluster for row in rows]
    pairs = {source: paired_difference(scores[source], scores[WHOLE], clusters) for source in SOURCES}
    adjusted = holm([pair.test.p for pair in pairs.values()])
    cells = {WHOLE: [f"{sum(scores[WHOLE]) / len(rows):.2f}", f"{len(rows)} faults, {len(set(clusters))} clusters"]}
    for (source, pair), p in zip(pairs.items(), adjusted, strict=True):
        difference = pair.difference
        bounds = f" [{difference.low:+.2f}, {difference.high:+.2f}]" if difference.interval_known else ""
        text = f"{difference.value:+.2f}{bounds} {format_p(p)}".strip()
        cells[source] = [f"{sum(scores[source]) / len(rows):.2f}", f"**{text}**" if p < 0.05 else text]
    return cells


def format_table(evaluation: Evaluation, episodes: Dataset) -> str:
    """Return the table in Markdown."""
    columns = [score_protocol(evaluation, protocol, episodes) for protocol in PROTOCOLS]
    titles = [title for protocol in PROTOCOLS.values() for title in (f"AC@1, {protocol}", "difference")]
    rows = [[source, *(cell for column in columns for cell in column[source])] for source in (WHOLE, *SOURCES)]
    return "\n".join(TextTable.of([f"`{METHOD}` without", *titles], rows).markdown())


@click.command()
@click.argument("path", metavar="DATASET")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the evaluation; an interrupted one is resumed.")
@click.option("--workers", type=int, default=2, show_default=True)
@click.option("--write", is_flag=True, help="Put the table into evidence_ablation.md.")
def main(path: str, out: Path | None, workers: int, write: bool) -> None:
    """Print the table."""
    dataset = open_dataset(path)
    with report_progress("evaluating") as progress:
        evaluation = evaluate(
            dataset,
            ["trace-errors", METHOD],
            tasks=["detection", "localization"],
            thresholds=["reference"],
            workers=workers,
            out=out,
            progress=progress,
        )
    cuts = cut_recordings(dataset) if dataset.recording_files else None
    table = format_table(evaluation, dataset if cuts is None else cuts.dataset)
    click.echo(table)
    if write:
        PAGE.write_text(table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
