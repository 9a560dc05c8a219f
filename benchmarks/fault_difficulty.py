"""Verdicts of each fault of a dataset, and the shares of methods and controls that locate it.

    python benchmarks/fault_difficulty.py DATASET [--baselines default] [--out FOLDER]

Localizers get the true onset, so a detector's misses do not count. A method solves an episode if its first service is
right. The first table has the faults, the hardest first. The second table has the controls on all manifest episodes: no
control should solve more than half of a campaign. The third table has the functional faults that clients did not
notice, with the reason: the fault is dormant, or which test on client requests came nearest to its limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pandas as pd

from faultset.collector.faults.registry import faults
from faultset.datasets import open_dataset
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.labels import Label
from faultset.evaluators import evaluate
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting, score_episodes
from faultset.evaluators.scoring.intervals import clustered_mean

SOLVED = 0.99
Solved = Mapping[str, Mapping[str, bool]]


def solved_episodes(scores: EpisodeScores) -> dict[str, dict[str, bool]]:
    """Return localizer -> episode -> whether the service named first is right, given the true onset."""
    right = scores.compute_correctness(Setting("localization", "oracle"))
    return {name: {episode: value > SOLVED for episode, value in by.items()} for name, by in right.items()}


def share(solved: Solved, names: Sequence[str], episodes: Sequence[str]) -> float:
    """Return the share of right answers of localizers about episodes."""
    answers = [solved[name][episode] for name in names for episode in episodes if episode in solved[name]]
    return sum(answers) / len(answers) if answers else float("nan")


def fault_lines(labels: Sequence[Label], solved: Solved, scores: EpisodeScores) -> list[str]:
    """Return a line of Markdown for each fault, the hardest first."""
    controls = [name for name in solved if scores.is_control(name)]
    methods = [name for name in solved if name not in controls]
    by_fault: dict[str, list[Label]] = {}
    for label in labels:
        if label.fault is not None:
            by_fault.setdefault(label.fault, []).append(label)
    lines = []
    for fault, names in by_fault.items():
        episodes = [label.episode for label in names]
        method_share, control_share = share(solved, methods, episodes), share(solved, controls, episodes)
        places = ", ".join(
            sorted({f"{scores.truths[label.episode].app}: {' and '.join(label.targets)}" for label in names})
        )
        mark = "" if {*_verdicts(names)} == {"manifest"} else "*"
        lines.append((method_share, f"| {fault}{mark} | {places} | {method_share:.0%} | {control_share:.0%} |"))
    return [line for _, line in sorted(lines)]


def _verdicts(labels: Sequence[Label]) -> Counter[str]:
    return Counter(label.verdict for label in labels)


def control_lines(done: Evaluation, solved: Solved, scores: EpisodeScores) -> list[str]:
    """Return a line of Markdown for each control, with the interval of its share of manifest episodes."""
    manifest = {e: truth for e, truth in scores.truths.items() if truth.faulty and truth.verdict == "manifest"}
    lines = []
    for name in (name for name in solved if scores.is_control(name)):
        right = {e: float(solved[name][e]) for e in manifest if e in solved[name]}
        if right:
            mean = clustered_mean(list(right.values()), [manifest[e].cluster for e in right])
            lines.append((-mean.value, f"| {name} | {mean.value:.2f} | [{mean.low:.2f}, {mean.high:.2f}] |"))
    return [line for _, line in sorted(lines)]


def not_manifest_lines(opened: Dataset, labels: Sequence[Label]) -> list[str]:
    """Return a line of Markdown for each episode whose functional fault is not manifest, with the reason."""
    lines = []
    for label in labels:
        if label.category == "functional" and label.verdict != "manifest" and label.fault is not None:
            dormant = dormant_reason(label)
            reason = f"dormant: {dormant}" if dormant else _nearest_test(opened[label.episode].evidence)
            lines.append(f"| {label.fault} | {' and '.join(label.targets)} | {label.verdict} | {reason} |")
    return sorted(lines)


def _nearest_test(evidence: pd.DataFrame) -> str:
    tests = evidence[evidence["check"] == "sli"]
    tests = tests[tests["p_value"].notna()].sort_values("p_value")
    if tests.empty:
        return "no client request was made after the onset"
    nearest = tests.iloc[0]
    return f"nearest to a limit: {nearest['subject']}, {nearest['detail']}, p = {nearest['p_value']:.2g}"


def dormant_reason(label: Label) -> str:
    """Return why clients should not notice an episode's fault; empty if they should."""
    return faults()[label.fault].dormant_reason if label.fault in faults() else ""


@click.command()
@click.argument("dataset")
@click.option("--baselines", default="default", show_default=True, help="Names or groups, with commas.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the evaluation; an interrupted one is resumed.")
@click.option("--workers", type=int, default=2, show_default=True)
def main(dataset: str, baselines: str, out: Path | None, workers: int) -> None:
    """Print the tables, and how many episodes with a functional fault are manifest."""
    opened = open_dataset(dataset)
    labels = [opened.label(episode) for episode in opened.episodes]
    done = evaluate(opened, baselines.split(","), tasks=("localization",), protocol="oracle", workers=workers, out=out)
    scores = score_episodes(done.rows)
    solved = solved_episodes(scores)
    functional = [label for label in labels if label.category == "functional"]
    others = [label for label in functional if not dormant_reason(label)]
    click.echo(
        f"{_verdicts(functional)['manifest']} of {len(functional)} episodes with a functional fault are manifest, "
        f"{_verdicts(others)['manifest']} of {len(others)} without dormant faults.\n"
    )
    click.echo("| fault (* not manifest) | application: target | methods | controls |")
    click.echo("|---|---|---:|---:|")
    click.echo("\n".join(fault_lines(labels, solved, scores)))
    click.echo("\n| control | AC@1, manifest episodes, given the onset | 95 % interval |\n|---|---|---|")
    click.echo("\n".join(control_lines(done, solved, scores)))
    click.echo("\n| functional fault | target | verdict | why clients did not feel it |\n|---|---|---|---|")
    click.echo("\n".join(not_manifest_lines(opened, labels)))


if __name__ == "__main__":
    main()
