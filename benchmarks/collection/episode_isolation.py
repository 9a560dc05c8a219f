"""Mutual disturbance of concurrent episodes or recordings: the correlation of their latencies second by second.

    collect --faults noop --no-fault plain --normal 20 --apps hotel --profile quick -j 2 --out two
    python benchmarks/collection/episode_isolation.py two [DATASET...]

Datasets that were collected at the same time count as one. Two episodes are compared if they overlap by at least 20 s
before an injection (recordings: in healthy stretches), when they share only the host. The script computes the mean
logarithm of client latencies in each second, and correlates its changes from second to second. Unlike the values, the
changes have no trends, such as a warm-up, which correlate by chance.

Rare stalls of the whole machine dominate the correlation of the changes, but not that of their ranks. The range by
chance is computed by shifting one of the two circularly by a random number of seconds, at least five. A mean
correlation of at most 0.1 counts as undisturbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise

import click
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata

from faultset.core.times import SECOND_NS
from faultset.datasets import Dataset, open_dataset

MIN_SECONDS = 20
MIN_SHIFT_S = 5
DRAWS = 500
HIGHEST_MEAN = 0.1

Changes = npt.NDArray[np.float64]
Window = tuple[int, int]


def latency_by_second(requests: pd.DataFrame, healthy: list[Window]) -> pd.Series:
    """Return the mean logarithm of latencies in each healthy second."""
    requests = requests[requests["latency_ns"].notna()]
    second = requests["scheduled"].astype("int64").to_numpy() // SECOND_NS
    logs = pd.Series(np.log(requests["latency_ns"].to_numpy(dtype="float64")), index=second)
    # remove the differences between endpoints
    logs -= logs.groupby(requests["endpoint"].astype(str).to_numpy()).transform("mean")
    is_healthy = np.zeros(len(second), dtype=bool)
    for start_ns, end_ns in healthy:
        is_healthy |= (second >= start_ns // SECOND_NS) & (second < end_ns // SECOND_NS)
    return logs[is_healthy].groupby(level=0).mean()


def read_latencies(dataset: Dataset) -> Iterator[tuple[str, Window, pd.Series]]:
    """Yield name, view and latencies by second of each episode and recording."""
    for name in dataset.episodes:
        episode = dataset[name]
        start_ns, end_ns = episode.view.window
        healthy = [(start_ns, episode.label.inject_start_ns or end_ns)]
        yield name, (start_ns, end_ns), latency_by_second(episode.view.requests(), healthy)
    for recording in dataset.recordings():
        healthy = [(stretch.start_ns, stretch.end_ns) for stretch in recording.truth.healthy_stretches]
        requests = recording.table("requests").to_pandas()
        name = f"{recording.context.app} {recording.id}"
        yield name, (recording.start_ns, recording.end_ns), latency_by_second(requests, healthy)


def overlapping_changes(latencies: Mapping[str, pd.Series]) -> dict[str, tuple[Changes, Changes]]:
    """Return the changes in successive common seconds of each pair that overlaps for long enough."""
    pairs = {}
    for (name, first), (other, second) in combinations(latencies.items(), 2):
        both = pd.concat([first, second], axis=1, join="inner").sort_index()
        if len(both) > MIN_SECONDS:
            follows = np.diff(both.index.to_numpy()) == 1
            changes = np.diff(both.to_numpy(dtype="float64"), axis=0)[follows]
            pairs[f"{name}, {other}"] = (changes[:, 0], changes[:, 1])
    return pairs


def mean_correlation(pairs: list[tuple[Changes, Changes]]) -> float:
    """Return the mean correlation of all pairs."""
    return float(np.mean([np.corrcoef(first, second)[0, 1] for first, second in pairs]))


def chance_interval(pairs: list[tuple[Changes, Changes]], rng: np.random.Generator) -> tuple[float, float]:
    """Return the range of 95 % of the mean correlations after random circular shifts."""
    means = [
        mean_correlation(
            [
                (first, np.roll(second, rng.integers(MIN_SHIFT_S, len(second) - MIN_SHIFT_S + 1)))
                for first, second in pairs
            ]
        )
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def mean_concurrency(windows: list[Window]) -> float:
    """Return how many views overlap on average while at least one is recorded."""
    bounds = sorted([(start_ns, 1) for start_ns, _ in windows] + [(end_ns, -1) for _, end_ns in windows])
    busy_ns = total_ns = running = 0
    for (time_ns, sign), (next_ns, _) in pairwise(bounds):
        running += sign
        busy_ns += (next_ns - time_ns) * (running > 0)
        total_ns += (next_ns - time_ns) * running
    return total_ns / busy_ns


def describe(pairs: list[tuple[Changes, Changes]]) -> str:
    """Return the cells of a table: mean correlation, its range by chance, and whether it is low enough."""
    mean = mean_correlation(pairs)
    low, high = chance_interval(pairs, np.random.default_rng(0))
    return f"{mean:.3f} | {low:.3f} to {high:.3f} | {'yes' if mean <= HIGHEST_MEAN else 'no'} |"


@click.command()
@click.argument("datasets", nargs=-1, required=True)
@click.option("--each", is_flag=True, help="Also print each pair.")
def main(datasets: tuple[str, ...], each: bool) -> None:
    """Print the mean correlation of all overlapping episodes and recordings, and the range by chance."""
    views = [view for dataset in map(open_dataset, datasets) for view in read_latencies(dataset)]
    pairs = overlapping_changes({name: latencies for name, _, latencies in views})
    if not pairs:
        raise SystemExit(f"no episodes overlap for more than {MIN_SECONDS} s; collect some with -j 2 or more")
    ranks = {name: (rankdata(first), rankdata(second)) for name, (first, second) in pairs.items()}
    count = f"{len(views)} | {mean_concurrency([window for _, window, _ in views]):.1f} | {len(pairs)}"
    click.echo("| views | at a time | pairs | of | mean r | by chance (95 %) | undisturbed |")
    click.echo("|---|---|---|---|---|---|---|")
    click.echo(f"| {count} | changes | {describe(list(pairs.values()))}")
    click.echo(f"| {count} | ranks of changes | {describe(list(ranks.values()))}")
    if each:
        click.echo("\n| pair | seconds | r of changes | r of their ranks |\n|---|---|---|---|")
        for name, changes in pairs.items():
            correlations = " | ".join(f"{mean_correlation([both]):.2f}" for both in (changes, ranks[name]))
            click.echo(f"| {name} | {len(changes[0])} | {correlations} |")


if __name__ == "__main__":
    main()
