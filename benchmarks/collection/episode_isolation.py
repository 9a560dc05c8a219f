"""Mutual disturbance of concurrent episodes: the correlation of their latencies second by second.

    python benchmarks/collection/episode_isolation.py DATASET...

For each pair of episodes whose views overlap by at least 20 s, the script correlates the mean logarithm of client
latencies in each second before the injection, when only the host is common to both. As a control, one of the two is
shifted by seven seconds, which shows the correlation by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import click
import numpy as np
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset
from faultset.datasets.dataset import Episode

LEAST_SECONDS = 20
SHIFT_S = 7


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


def correlations(latencies: Mapping[str, pd.Series], shift_s: int = 0) -> list[float]:
    """Return the correlation of each pair that overlaps for long enough, one of the two shifted."""
    values = []
    for first, second in combinations(latencies.values(), 2):
        shifted = second.rename(index=lambda at: at + shift_s)
        both = pd.concat([first, shifted], axis=1, join="inner")
        if len(both) >= LEAST_SECONDS:
            values.append(float(np.corrcoef(both.to_numpy().T)[0, 1]))
    return values


@click.command()
@click.argument("datasets", nargs=-1, required=True)
def main(datasets: tuple[str, ...]) -> None:
    """Print the median correlation of each dataset and its control."""
    click.echo("| dataset | at a time | pairs | median r | quartiles | above 0.3 | shifted by 7 s |")
    click.echo("|---|---|---|---|---|---|---|")
    for path in datasets:
        dataset = open_dataset(path)
        episodes = [dataset[name] for name in dataset.episodes]
        latencies = {episode.id: latency_by_second(episode) for episode in episodes}
        values, shifted = correlations(latencies), correlations(latencies, SHIFT_S)
        if not values or not shifted:
            click.echo(f"| {dataset.root.name} | no episodes overlap for {LEAST_SECONDS + SHIFT_S} s |")
            continue
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
        parallel = max(int(episode.label.host.get("parallel", 1)) for episode in episodes)
        click.echo(
            f"| {dataset.root.name} | {parallel} | {len(values)} | {median:.2f} | {low:.2f} to {high:.2f} "
            f"| {np.mean(np.array(values) > 0.3):.0%} | {np.median(shifted):.2f} |"
        )


if __name__ == "__main__":
    main()
