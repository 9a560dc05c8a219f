"""Measure the hit rate of `faultset diagnose` by the agreement of its panel, and its suspicions of healthy episodes.

    python benchmarks/diagnosis_calibration.py core-2 nezha-ob/ nezha-tt/ petshop/ rcaeval/ openstack/ [--write]

Every labelled episode is diagnosed twice: with the time of the onset (the end of the reference without a fault), and
with the time that detectors find. Recordings are cut into episodes as in `evaluate`, some of them without a fault.
Faults count if their verdict is manifest, or unknown in imported data. The limit of evidence is the 90 % quantile of
the strength in fault-free episodes, given the time. `--write` stores the result for the command and writes the tables
of docs/how-to/own-incident.md. docs/how-to/import-and-export.md explains the imports.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from faultset.core.errors import DataError
from faultset.core.output import StepCounter, report_progress
from faultset.datasets import Dataset, open_dataset
from faultset.evaluators.diagnosis import records
from faultset.evaluators.diagnosis.analysis import CONTROL, PANEL, diagnose, measure_strength, rank_suspects
from faultset.evaluators.diagnosis.records import (
    CALIBRATION_FILE,
    HitRate,
    IncidentAnalysis,
    MeasuredData,
    PanelAnswer,
    PanelCalibration,
)
from faultset.evaluators.recordings.cut_episodes import cut_recordings
from faultset.evaluators.results.truth import Truth, build_truth

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "own-incident.md"
BEGIN, END = "<!-- calibration -->", "<!-- end calibration -->"
HEALTHY_QUANTILE = 0.9
PROTOCOLS = ("oracle", "detected")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The answer of the panel about one episode."""

    data: str
    app: str
    faulty: bool
    strength: float
    agreeing: int
    right: bool
    right_in_three: bool
    control_right: float
    """Expected hits: the share of causes among the services that the control suspects most."""


def open_episodes(dataset: str) -> Dataset:
    """Open the episodes of a dataset, or cuts of its recordings."""
    opened = open_dataset(dataset)
    if opened.episodes:
        return opened
    cuts = cut_recordings(opened)
    if cuts is None:
        raise DataError(f"{dataset} has neither episodes nor incidents of services; leave it out")
    return cuts.dataset


def measure_episode(job: tuple[str, Path, str]) -> dict[str, Outcome] | None:
    """Diagnose an episode with and without its time; None if its fault does not count."""
    data, root, episode_id = job
    episode = open_dataset(root)[episode_id]
    truth = build_truth(episode.label, episode.context)
    if truth.faulty and truth.verdict not in ("manifest", "unknown"):
        return None
    time_ns = truth.onset_ns if truth.onset_ns is not None else truth.reference_end_ns
    analyses = {"oracle": diagnose(episode, at_ns=time_ns), "detected": diagnose(episode)}
    return {protocol: _outcome(data, truth, analysis) for protocol, analysis in analyses.items()}


def _outcome(data: str, truth: Truth, analysis: IncidentAnalysis) -> Outcome:
    ranked = [service for service, _ in rank_suspects(analysis.answers)]
    causes = {name for accepted in truth.causes for name in accepted}
    return Outcome(
        data=data,
        app=truth.app,
        faulty=truth.faulty,
        strength=measure_strength(analysis.answers),
        agreeing=sum(answer.first == ranked[0] for answer in analysis.answers) if ranked else 0,
        right=bool(ranked) and ranked[0] in causes,
        right_in_three=any(service in causes for service in ranked[:3]),
        control_right=_expected_hits(analysis.control, causes),
    )


def _expected_hits(answer: PanelAnswer, causes: set[str]) -> float:
    highest = max(answer.scores.values(), default=0.0)
    first = [service for service, score in answer.scores.items() if score == highest]
    return sum(service in causes for service in first) / len(first) if first else 0.0


def hit_rates(outcomes: Iterable[Outcome], limit: float) -> tuple[HitRate, ...]:
    """Return the hit rates of named suspects by agreement."""
    named = [outcome for outcome in outcomes if outcome.strength > limit]
    rates = []
    for agreeing in sorted({outcome.agreeing for outcome in named}):
        same = [outcome for outcome in named if outcome.agreeing == agreeing]
        faulty = [outcome for outcome in same if outcome.faulty]
        rates.append(
            HitRate(
                agreeing=agreeing,
                incidents=len(faulty),
                right=sum(outcome.right for outcome in faulty),
                right_in_three=sum(outcome.right_in_three for outcome in faulty),
                healthy=len(same) - len(faulty),
            )
        )
    return tuple(rates)


def by_data(outcomes: Sequence[Outcome], limit: float) -> tuple[MeasuredData, ...]:
    """Return the results of each collection of episodes."""
    results = []
    for data in dict.fromkeys(outcome.data for outcome in outcomes):
        faulty = [outcome for outcome in outcomes if outcome.data == data and outcome.faulty]
        healthy = [outcome for outcome in outcomes if outcome.data == data and not outcome.faulty]
        named = [outcome for outcome in faulty if outcome.strength > limit]
        results.append(
            MeasuredData(
                data=data,
                incidents=len(faulty),
                named=len(named),
                right=sum(outcome.right for outcome in named),
                right_in_three=sum(outcome.right_in_three for outcome in named),
                control_right=round(sum(outcome.control_right for outcome in faulty), 1),
                healthy=len(healthy),
                healthy_named=sum(outcome.strength > limit for outcome in healthy),
            )
        )
    return tuple(results)


def calibrate(outcomes: Sequence[dict[str, Outcome]]) -> PanelCalibration:
    """Return the limit of evidence, the hit rates and the results by data."""
    answers = {protocol: [outcome[protocol] for outcome in outcomes] for protocol in PROTOCOLS}
    strengths = [outcome.strength for outcome in answers["oracle"] if not outcome.faulty]
    if not strengths:
        raise DataError("the limit needs episodes without a fault, but the datasets have none; add one such as core-2")
    limit = round(float(np.quantile(strengths, HEALTHY_QUANTILE)), 1)
    return PanelCalibration(
        panel=PANEL,
        control=CONTROL,
        limit=limit,
        oracle=hit_rates(answers["oracle"], limit),
        detected=hit_rates(answers["detected"], limit),
        data={protocol: by_data(answers[protocol], limit) for protocol in PROTOCOLS},
    )


def held_out_naming(outcomes: Sequence[dict[str, Outcome]], protocol: str) -> tuple[int, int]:
    """Count fault-free episodes: those with suspects if the limit comes from the other applications, and all."""
    healthy = [outcome for outcome in outcomes if not outcome[protocol].faulty]
    named = 0
    for app in {outcome[protocol].app for outcome in healthy}:
        others = [outcome["oracle"].strength for outcome in healthy if outcome["oracle"].app != app]
        if not others:
            continue
        limit = float(np.quantile(others, HEALTHY_QUANTILE))
        named += sum(outcome[protocol].app == app and outcome[protocol].strength > limit for outcome in healthy)
    return named, len(healthy)


def tables(result: PanelCalibration, outcomes: Sequence[dict[str, Outcome]]) -> str:
    """Return the tables of the page."""
    oracle = {rate.agreeing: rate for rate in result.oracle}
    detected = {rate.agreeing: rate for rate in result.detected}
    lines = [
        "| methods that agree | time given: first right | one of three | time found: first right | one of three |",
        "|---:|---:|---:|---:|---:|",
    ]
    for agreeing in sorted(oracle.keys() | detected.keys()):
        cells = [cell for rates in (oracle, detected) for cell in _rate_cells(rates.get(agreeing))]
        lines.append(f"| {agreeing} | {' | '.join(cells)} |")
    lines += [
        "",
        "| data, time given / found | incidents | suspects named | first right | one of three right | "
        "control right, of all | fault-free, named |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for rows in zip(*(result.data[protocol] for protocol in PROTOCOLS), strict=True):
        cells = [
            " / ".join(f"{getattr(row, name):g}" for row in rows)
            for name in ("named", "right", "right_in_three", "control_right")
        ]
        healthy = (
            f"{' / '.join(str(row.healthy_named) for row in rows)} of {rows[0].healthy}" if rows[0].healthy else ""
        )
        lines.append(f"| {rows[0].data} | {rows[0].incidents} | {' | '.join(cells)} | {healthy} |")
    held_out = [held_out_naming(outcomes, protocol) for protocol in PROTOCOLS]
    lines += [
        "",
        f"Limit: {result.limit:g}, as -log10 of a probability. With limits from the other applications, "
        f"{held_out[0][0]} of {held_out[0][1]} fault-free episodes have",
        f"suspects if the time is given, {held_out[1][0]} if it is found.",
    ]
    return "\n".join(lines)


def _rate_cells(rate: HitRate | None) -> tuple[str, str]:
    if rate is None or not rate.incidents:
        return "", ""
    first = f"{rate.right} of {rate.incidents} ({100 * rate.share:.0f} %)"
    return first, f"{rate.right_in_three} of {rate.incidents}"


@click.command(help=__doc__)
@click.argument("datasets", nargs=-1, required=True)
@click.option("--processes", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default="number of cores")
@click.option("--write", is_flag=True, help="Store the result and write the tables of the page.")
def main(datasets: tuple[str, ...], processes: int, write: bool) -> None:
    """Measure, print, and store."""
    opened = {Path(dataset).name: open_episodes(dataset) for dataset in datasets}
    jobs = [(name, Path(episodes.root), episode) for name, episodes in opened.items() for episode in episodes.episodes]
    outcomes: list[dict[str, Outcome]] = []
    with report_progress("episodes") as progress, ProcessPoolExecutor(processes) as pool:
        steps = StepCounter(len(jobs), progress)
        for outcome in pool.map(measure_episode, jobs):
            outcomes += [outcome] if outcome is not None else []
            steps.add()
    result = calibrate(outcomes)
    text = tables(result, outcomes)
    print(text)
    if write:
        content: dict[str, Any] = asdict(result)
        (Path(records.__file__).parent / CALIBRATION_FILE).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        changed = re.sub(
            f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n\n{text}\n\n{END}", PAGE.read_text("utf-8"), flags=re.DOTALL
        )
        PAGE.write_text(changed, "utf-8")


if __name__ == "__main__":
    main()
