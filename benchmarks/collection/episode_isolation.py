"""Mutual disturbance of concurrent episodes: the correlation of their latencies second by second.

    collect --faults noop --no-fault plain --normal 20 --apps hotel --profile quick -j 2 --out two
    python benchmarks/collection/episode_isolation.py two [DATASET...]

Datasets that were collected at the same time count as one. For each pair of episodes whose views overlap by at least
20 s before an injection, when only the host is common to both, the script correlates the changes from second to second
of the mean logarithm of client latencies. Changes are free of trends, such as a warm-up, which correlate by chance.

The correlations by chance are those after a circular shift of one of the two by a random number of seconds, at least
five. A mean correlation of at most 0.1 counts as undisturbed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise

import click
import numpy as np
import numpy.typing as npt
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset
from faultset.datasets.dataset import Episode

MIN_SECONDS = 20
MIN_SHIFT_S = 5
DRAWS = 2000
HIGHEST_MEAN = 0.1

Changes = npt.NDArray[np.float64]


def latency_by_second(episode: Episode) -> pd.Series:
    """Return the mean logarithm of latencies in each second before the injection."""
    requests = episode.view.requests()
    requests = requests[requests["latency_ns"].notna()]
    end_ns = episode.label.inject_start_ns or episode.view.window[1]
    second = requests["scheduled"].astype("int64").to_numpy() // SECOND_NS
    logs = pd.Series(np.log(requests["latency_ns"].to_numpy(dtype="float64")), index=second)
    # remove the differences between endpoints
    logs -= logs.groupby(requests["endpoint"].astype(str).to_numpy()).transform("mean")
    return logs[second < end_ns // SECOND_NS].groupby(level=0).mean()


def overlapping_changes(latencies: Mapping[str, pd.Series]) -> list[tuple[Changes, Changes]]:
    """Return the changes in the common seconds of each pair that overlaps for long enough."""
    pairs = []
    for first, second in combinations(latencies.values(), 2):
        both = pd.concat([first, second], axis=1, join="inner")
        if len(both) > MIN_SECONDS:
            changes = np.diff(both.to_numpy(dtype="float64"), axis=0)
            pairs.append((changes[:, 0], changes[:, 1]))
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


def mean_concurrency(episodes: list[Episode]) -> float:
    """Return how many views overlap on average while at least one is recorded."""
    windows = [episode.view.window for episode in episodes]
    bounds = sorted([(start_ns, 1) for start_ns, _ in windows] + [(end_ns, -1) for _, end_ns in windows])
    busy_ns = total_ns = running = 0
    for (time_ns, sign), (next_ns, _) in pairwise(bounds):
        running += sign
        busy_ns += (next_ns - time_ns) * (running > 0)
        total_ns += (next_ns - time_ns) * running
    return total_ns / busy_ns


@click.command()
@click.argument("datasets", nargs=-1, required=True)
def main(datasets: tuple[str, ...]) -> None:
    """Print the mean correlation of all overlapping episodes, and the range by chance."""
    episodes = [dataset[name] for dataset in map(open_dataset, datasets) for name in dataset.episodes]
    pairs = overlapping_changes({episode.id: latency_by_second(episode) for episode in episodes})
    if not pairs:
        raise SystemExit(f"no episodes overlap for more than {MIN_SECONDS} s; collect some with -j 2 or more")
    mean = mean_correlation(pairs)
    low, high = chance_interval(pairs, np.random.default_rng(0))
    click.echo("| episodes | at a time | pairs | mean r | by chance (95 %) | undisturbed |")
    click.echo("|---|---|---|---|---|---|")
    click.echo(
        f"| {len(episodes)} | {mean_concurrency(episodes):.1f} | {len(pairs)} | {mean:.3f} | {low:.3f} to {high:.3f} "
        f"| {'yes' if mean <= HIGHEST_MEAN else 'no'} |"
    )


if __name__ == "__main__":
    main()
