"""False alarms of the test on client requests, and verdicts of datasets that change if the test is repeated.

    python benchmarks/client_test_errors.py DATASET... [--simulated 400]

Pairs of windows without a fault have four sources: episodes without a fault, forwards and backwards in time, with
the onset from their plan; the time before the injection of every episode, split in two; the windows in healthy
stretches of recordings that `faultset judge` also uses, forwards and backwards; and simulated requests with slow
periods, latencies that drift together, and background errors in bursts. Afterwards the script judges every episode
with a fault again and lists verdicts that change, and dormant faults that are manifest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

import click
import numpy as np
import pandas as pd

from faultset.collector.faults.registry import faults
from faultset.collector.plans.plan import random_draws, read_plan
from faultset.collector.verdicts.client_requests import ComparisonWindows, SliTest, as_seen_at, sli_tests, with_load
from faultset.collector.verdicts.exact_tests import compute_binomial_interval
from faultset.collector.verdicts.later_verdicts import PlannedRecording, find_planned_recordings
from faultset.collector.verdicts.verdict import judge_episode
from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset
from faultset.datasets.dataset import Episode

VIEW_S, REFERENCE_S = 90, 36
ENDPOINTS = {"GET /list": 0.6, "GET /item": 0.25, "POST /order": 0.1, "POST /user": 0.05}


class Pair(NamedTuple):
    """Two windows without a fault."""

    kind: str
    requests: pd.DataFrame
    windows: ComparisonWindows

    @property
    def firing(self) -> list[SliTest]:
        """Tests that fire, each a false alarm."""
        return [test for test in sli_tests(self.requests, self.windows) if test.fires]


def recorded_pairs(episode: Episode) -> Iterator[Pair]:
    """Yield the pairs of one episode."""
    plan = read_plan(episode.path)
    start_ns, end_ns = episode.view.window
    reference_end_ns = episode.view.reference[1]
    drawn_ns = start_ns + int(random_draws(plan).onset_s * SECOND_NS)
    onset_ns = episode.label.inject_start_ns or drawn_ns
    requests = episode.view.requests()
    requests = requests.assign(scheduled=requests["scheduled"].astype("int64"))
    if not plan.traffic.pattern.is_constant:
        requests = with_load(requests)
    split_ns = start_ns + int(0.45 * (onset_ns - start_ns))
    halves = ComparisonWindows(start_ns=start_ns, reference_end_ns=split_ns, onset_ns=split_ns, end_ns=onset_ns)
    yield Pair("before the injection", as_seen_at(requests, onset_ns), halves)
    if not plan.faults:
        windows = ComparisonWindows(
            start_ns=start_ns, reference_end_ns=reference_end_ns, onset_ns=onset_ns, end_ns=end_ns
        )
        yield Pair(f"{plan.no_fault_kind} episode", requests, windows)
        reverse = requests.assign(scheduled=start_ns + end_ns - requests["scheduled"])
        yield Pair(f"{plan.no_fault_kind} episode, backwards", reverse, windows)


def healthy_pairs(planned: PlannedRecording) -> Iterator[Pair]:
    """Yield pairs in healthy stretches of a recording, with the lengths of its incidents."""
    durations = (incident.fault_duration_ns for incident in planned.recording.truth.incidents)
    lengths_ns = [duration_ns for duration_ns in durations if duration_ns is not None]
    next_lengths = cycle(lengths_ns)
    for onset_ns, last_ns in planned.healthy_onsets():
        if onset_ns + min(lengths_ns) > last_ns:
            continue
        windows = planned.windows_around(onset_ns, min(next(next_lengths), last_ns - onset_ns))
        requests = planned.recording.table("requests", windows.start_ns, windows.end_ns).to_pandas()
        requests = requests.assign(scheduled=requests["scheduled"].astype("int64"))
        if not planned.plan.traffic.pattern.is_constant:
            requests = with_load(requests)
        yield Pair("healthy stretch", requests, windows)
        both_ns = windows.start_ns + windows.end_ns
        backwards = ComparisonWindows(
            start_ns=windows.start_ns,
            reference_end_ns=both_ns - windows.onset_ns,
            onset_ns=both_ns - windows.reference_end_ns,
            end_ns=windows.end_ns,
        )
        reverse = requests.assign(scheduled=both_ns - requests["scheduled"])
        yield Pair("healthy stretch, backwards", reverse, backwards)


def simulated_pair(seed: int) -> Pair:
    """Return requests of a healthy application on a shared host."""
    rng = np.random.default_rng(seed)
    times_s = np.sort(rng.uniform(0, VIEW_S, rng.poisson(20 * VIEW_S)))
    second = times_s.astype(int)
    drift = np.zeros(VIEW_S)
    for at in range(1, VIEW_S):
        drift[at] = 0.8 * drift[at - 1] + rng.normal(0, 0.2)
    slow, failing = np.ones(VIEW_S), np.full(VIEW_S, rng.uniform(0, 0.01))
    for _ in range(rng.poisson(VIEW_S / 25)):
        at = rng.integers(VIEW_S)
        slow[at : at + 1 + rng.poisson(2)] *= rng.uniform(1.5, 8)
    for _ in range(rng.poisson(VIEW_S / 60)):
        at = rng.integers(VIEW_S)
        failing[at : at + 2] += rng.uniform(0, 0.1)
    latency_s = 0.02 * np.exp(rng.normal(0, 0.5, len(times_s)) + drift[second]) * slow[second]
    frame = pd.DataFrame(
        {
            "scheduled": (times_s * SECOND_NS).astype("int64"),
            "endpoint": rng.choice([*ENDPOINTS], len(times_s), p=[*ENDPOINTS.values()]),
            "outcome": np.where(rng.random(len(times_s)) < failing[second], "http_error", "ok"),
            "latency_ns": pd.array((latency_s * SECOND_NS).astype("int64"), dtype="Int64"),
        }
    )
    onset_s = rng.uniform(36, 54)
    windows = ComparisonWindows(
        start_ns=0,
        reference_end_ns=REFERENCE_S * SECOND_NS,
        onset_ns=int(onset_s * SECOND_NS),
        end_ns=VIEW_S * SECOND_NS,
    )
    return Pair("simulated", frame, windows)


def judge_again(episode: Episode) -> list[str]:
    """Report a changed verdict of an episode, or a dormant fault that clients noticed."""
    label = episode.label
    if label.inject_start_ns is None or label.verdict == "none":
        return []
    judgement = judge_episode(episode.view, read_plan(episode.path), onset_ns=label.inject_start_ns, limit=None)
    rows = episode.evidence
    rows = rows[(rows["check"] == "sli") & rows["passed"].astype(bool)]
    # a compacted dataset has too few spans to test messages again
    by_messages = not {str(subject).rpartition(" ")[0] for subject in rows["subject"]} <= {
        *episode.view.requests()["endpoint"].astype(str)
    }
    was, now = label.verdict == "manifest", judgement.impact.is_manifest or by_messages
    felt = "; ".join(str(test) for test in judgement.impact.tests if test.fires)
    title = f"{episode.id} {label.fault} on {' and '.join(label.targets)} ({episode.context.app})"
    lines = []
    if was != now:
        recorded = "; ".join(
            f"{subject}, {detail}" for subject, detail in zip(rows["subject"], rows["detail"], strict=True)
        )
        lines.append(f"{'no longer' if was else 'newly'} manifest: {title}: {felt or recorded}")
    dormant = faults()[label.fault].dormant_reason if label.fault in faults() else ""
    if dormant and now:
        lines.append(f"manifest although dormant: {title}: {felt}")
    return lines


@click.command()
@click.argument("datasets", nargs=-1, required=True)
@click.option("--simulated", default=400, show_default=True)
def main(datasets: tuple[str, ...], simulated: int) -> None:
    """Print the false alarms by kind of pair, and the verdicts that change."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    notes, manifest = [], [0, 0]

    def count(pair: Pair, name: str) -> None:
        counts[pair.kind][0] += bool(pair.firing)
        counts[pair.kind][1] += 1
        if pair.firing and name:
            notes.append(f"false alarm: {pair.kind} {name}: {'; '.join(map(str, pair.firing))}")

    for path in datasets:
        dataset = open_dataset(path)
        for planned in find_planned_recordings(dataset.recordings()):
            for pair in healthy_pairs(planned):
                count(pair, planned.recording.id)
        for name in dataset.episodes:
            for pair in recorded_pairs(dataset[name]):
                count(pair, name)
            lines = judge_again(dataset[name])
            notes += lines
            manifest[1] += dataset.label(name).verdict == "manifest"
            manifest[0] += dataset.label(name).verdict == "manifest" and not any("no longer" in line for line in lines)
    recorded = [sum(numbers) for numbers in zip(*counts.values(), strict=True)]
    for seed in range(simulated):
        count(simulated_pair(seed), "")
    click.echo("| pairs without a fault | fire | of | rate | 95 % interval |\n|---|---|---|---|---|")
    for kind, (fires, pairs) in {**counts, "all recorded": recorded}.items():
        low, high = compute_binomial_interval(fires, pairs)
        click.echo(f"| {kind} | {fires} | {pairs} | {fires / pairs:.2%} | [{low:.2%}, {high:.2%}] |")
    click.echo(f"\n{manifest[0]} of {manifest[1]} manifest episodes keep their verdict.\n")
    click.echo("\n".join(notes))


if __name__ == "__main__":
    main()
