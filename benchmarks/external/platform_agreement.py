"""The same plans on the embedded platform and on a cluster: verdicts, scores of methods, and effects of faults.

    collect --faults A,B,C --apps hotel --normal 0 --profile quick --seed 7 -j 1 --out embedded
    collect --faults A,B,C --apps hotel --normal 0 --profile quick --seed 7 -j 1 --out cluster --platform kubernetes
    python benchmarks/external/platform_agreement.py embedded cluster

Episodes of the same application, fault and targets are compared. Localizers get the true onset. Intervals are 95 %,
from a bootstrap over the plans. Effects are logarithms of ratios, for errors differences; if a group has several
services, their median is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import pandas as pd
from effect_sizes import GROUPS, MEASURES, measure_effects
from scipy.stats import rankdata

from faultset.datasets import Dataset, open_dataset
from faultset.datasets.dataset import Episode
from faultset.evaluators import evaluate

DRAWS = 2000

Numbers = npt.NDArray[np.float64]
Plan = tuple[str, str, tuple[str, ...]]
Pair = tuple[Episode, Episode]


def pair_episodes(first: Dataset, second: Dataset) -> list[Pair]:
    """Return the episodes with the same application, fault and targets."""
    by_plan: dict[Plan, Episode] = {plan_of(first[name]): first[name] for name in first.episodes}
    return [
        (by_plan[plan], second[name])
        for name in second.episodes
        if (plan := plan_of(second[name])) in by_plan and plan[1]
    ]


def plan_of(episode: Episode) -> Plan:
    """Return application, fault and targets."""
    return episode.view.context.app, episode.label.fault or "", tuple(episode.label.targets)


def bootstrap(values: Callable[[npt.NDArray[np.int64]], float], count: int) -> str:
    """Return a statistic of all plans, with its interval."""
    rng = np.random.default_rng(0)
    draws = [values(rng.integers(0, count, count)) for _ in range(DRAWS)]
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return f"{values(np.arange(count)):+.2f} [{low:+.2f}, {high:+.2f}]"


def score_episodes(dataset: Dataset, baselines: list[str], metric: str) -> pd.DataFrame:
    """Return a metric of each method (columns) on each episode (rows) with the true onset."""
    evaluation = evaluate(dataset, baselines, tasks=["localization"], protocol="oracle", evidence=())
    values = evaluation.episode_values("localization")
    return values[values["metric"] == metric].pivot_table(index="episode", columns="baseline", values="value")


def print_scores(pairs: list[Pair], datasets: tuple[Dataset, Dataset], baselines: list[str], metric: str) -> None:
    """Print the mean score of each method on both platforms, and the rank correlation of these means."""
    first, second = (score_episodes(dataset, baselines, metric) for dataset in datasets)
    both = [(a.id, b.id) for a, b in pairs if a.id in first.index and b.id in second.index]
    methods = sorted(str(name) for name in set(first) & set(second))
    left = first.loc[[a for a, _ in both], methods].to_numpy(dtype="float64")
    right = second.loc[[b for _, b in both], methods].to_numpy(dtype="float64")
    click.echo(f"\n{metric} on {len(both)} plans with answers on both\n")
    click.echo("| method | first | second | difference |\n|---|---|---|---|")
    for column in np.argsort(-left.mean(axis=0)):
        differences = right[:, column] - left[:, column]
        means = f"{left[:, column].mean():.2f} | {right[:, column].mean():.2f}"
        difference = bootstrap(lambda rows, values=differences: float(values[rows].mean()), len(both))
        click.echo(f"| {methods[column]} | {means} | {difference} |")
    correlation = bootstrap(lambda rows: rank_correlation(left[rows].mean(axis=0), right[rows].mean(axis=0)), len(both))
    click.echo(f"\nrank correlation of the {len(methods)} means: {correlation}")


def rank_correlation(first: Numbers, second: Numbers) -> float:
    """Return Spearman's correlation."""
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def compute_median_effects(episode: Episode) -> dict[tuple[str, str], float]:
    """Return the median effect by group and measure."""
    medians = {}
    for (group, measure), effects in measure_effects(episode).items():
        values = np.asarray(effects, dtype="float64")
        if measure != "errors":
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.log(values)
        if np.isfinite(values).any():
            medians[group, measure] = float(np.median(values[np.isfinite(values)]))
    return medians


def print_effects(pairs: list[Pair]) -> None:
    """Print the median difference of effects between the platforms."""
    differences: dict[tuple[str, str], list[float]] = defaultdict(list)
    for first, second in pairs:
        left, right = compute_median_effects(first), compute_median_effects(second)
        for key in left.keys() & right.keys():
            differences[key].append(right[key] - left[key])
    click.echo("\nEffects, second minus first: median\n\n| measure | at | plans | difference |\n|---|---|---|---|")
    for measure in MEASURES:
        for group in GROUPS:
            values: Numbers = np.asarray(differences[group, measure], dtype="float64")
            if len(values) > 2:
                difference = bootstrap(lambda rows, values=values: float(np.median(values[rows])), len(values))
                click.echo(f"| {measure} | {group} | {len(values)} | {difference} |")


@click.command()
@click.argument("paths", nargs=2, type=click.Path(exists=True, path_type=Path))
@click.option("--baselines", default="default", show_default=True, help="Names and groups of localizers.")
@click.option("--metric", default="mrr", show_default=True, help="ac1, ac3, avg5 or mrr.")
def main(paths: tuple[Path, Path], baselines: str, metric: str) -> None:
    """Compare two datasets collected with the same plans."""
    first, second = datasets = (open_dataset(paths[0]), open_dataset(paths[1]))
    pairs = pair_episodes(first, second)
    if not pairs:
        raise SystemExit("no plan is in both datasets; collect both with the same faults, applications and seed")
    verdicts = pd.crosstab(
        pd.Series([a.label.verdict for a, _ in pairs], name="first"),
        pd.Series([b.label.verdict for _, b in pairs], name="second"),
    )
    click.echo(f"{len(pairs)} plans; their verdicts:\n\n{verdicts}")
    print_scores(pairs, datasets, baselines.split(","), metric)
    print_effects(pairs)


if __name__ == "__main__":
    main()
