"""Effect of each source of evidence on `combined-evidence`.

    python benchmarks/evidence_ablation.py datasets/core-2 [--out FOLDER] [--write]

The script evaluates the method and its copies without one source, with the true onset and at the alarm of
`trace-errors`, and prints AC@1 and the paired differences to the whole method over clusters (Holm over the sources).
`--out` stores the evaluation and resumes an interrupted one. `--write` puts the table into evidence_ablation.md, which
docs/results/sensitivity.md shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from faultset.baselines.api.contract import Ranking
from faultset.baselines.api.registry import BaselineSpec, get_baseline
from faultset.baselines.methods.localization import combined_evidence
from faultset.core.command_line.progress import report_progress
from faultset.datasets.views import EpisodeView
from faultset.evaluators import Evaluation, evaluate
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.records import HEADLINE
from faultset.evaluators.statistics.comparison import holm, paired_difference

PAGE = Path(__file__).with_suffix(".md")
METHOD = "combined-evidence"
SOURCES = {
    "metrics": "metric_evidence",
    "error lines and missing lines": "log_evidence",
    "failed calls": "_collect_failed_calls",
    "patterns of requests": "_collect_request_evidence",
    "object states": "_collect_object_evidence",
    "recognition of rollouts": "successful_rollouts",
    "explanation by calls": "read_call_graph",
}
"""Source -> function of the method's module that reads it."""
PROTOCOLS = {"oracle": "true onset", "detected": "at the alarm"}


class WithoutSource(combined_evidence.CombinedEvidence):
    """Combined evidence in which one source is empty."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by the evidence of the other sources."""
        nothing: Any = {} if self._source == "recognition of rollouts" else []
        with patch.object(combined_evidence, SOURCES[self._source], lambda *_: nothing):
            return super().localize(episode, alarm_ns)


def build_copies() -> Iterator[BaselineSpec]:
    """Yield the method without each of its sources."""
    spec = get_baseline(METHOD)
    for source in SOURCES:
        yield replace(spec, name=f"{METHOD} without {source}", factory=partial(WithoutSource, source))


def compare_protocol(evaluation: Evaluation, protocol: str) -> dict[str, list[str]]:
    """Return AC@1 and the difference to the whole method for each source, and AC@1 of the whole method."""
    values = evaluation.episode_values("localization")
    chosen = values[(values["protocol"] == protocol) & (values["verdict"] == HEADLINE) & (values["metric"] == "ac1")]
    scores = chosen.pivot(index="episode", columns="baseline", values="value")
    truths = {row.episode: row.truth for row in evaluation.rows}
    clusters = [truths[episode].cluster for episode in scores.index]
    whole = scores[METHOD]
    names = {source: f"{METHOD} without {source}" for source in SOURCES}
    pairs = {source: paired_difference(scores[name], whole, clusters) for source, name in names.items()}
    adjusted = holm([pair.test.p for pair in pairs.values()])
    cells = {"": [f"{whole.mean():.2f}", ""]}
    for (source, pair), p in zip(pairs.items(), adjusted, strict=True):
        difference = pair.difference
        bounds = f" [{difference.low:+.2f}, {difference.high:+.2f}]" if difference.interval_known else ""
        text = f"{difference.value:+.2f}{bounds} {number_formats.p_value(p)}".strip()
        cells[source] = [f"{scores[names[source]].mean():.2f}", f"**{text}**" if p < 0.05 else text]
    return cells


def format_table(evaluation: Evaluation) -> str:
    """Return the table in Markdown, with the number of episodes in its corner."""
    columns = {protocol: compare_protocol(evaluation, protocol) for protocol in PROTOCOLS}
    titles = " | ".join(f"AC@1, {title} | difference" for title in PROTOCOLS.values())
    lines = [f"| {METHOD} without | {titles} |", f"|---|{'---:|---|' * len(PROTOCOLS)}"]
    for source in ("", *SOURCES):
        cells = [cell for column in columns.values() for cell in column[source]]
        lines.append(f"| {source or 'nothing'} | {' | '.join(cells)} |")
    return "\n".join(lines)


@click.command()
@click.argument("dataset")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the evaluation; an interrupted one is resumed.")
@click.option("--workers", type=int, default=2, show_default=True)
@click.option("--write", is_flag=True, help="Put the table into evidence_ablation.md.")
def main(dataset: str, out: Path | None, workers: int, write: bool) -> None:
    """Print the table."""
    with report_progress("evaluating") as progress:
        evaluation = evaluate(
            dataset,
            ["trace-errors", METHOD, *build_copies()],
            tasks=["detection", "localization"],
            thresholds=["reference"],
            workers=workers,
            out=out,
            progress=progress,
        )
    table = format_table(evaluation)
    click.echo(table)
    if write:
        PAGE.write_text(table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
