"""Coverage of a leaderboard's intervals, for simulated populations of episodes with a known truth.

    python benchmarks/interval_coverage.py [--samples 2000]

Each sample draws a truth, clusters of one to five episodes, and their outcomes; within a cluster outcomes are
independent, partly alike, or identical. The true shares are spread over (0.03, 0.97), so a figure is the mean coverage
for a reader of many tables, not for one particular truth. It should always be 0.93 to 0.97.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import click
import numpy as np
from scipy.stats import norm

from faultset.evaluators.scoring.intervals import (
    Estimate,
    clustered_mean,
    clustered_median,
    clustered_ratio,
    event_rate,
)
from faultset.evaluators.scoring.paired_tests import balanced_accuracy, matthews_correlation, mean_difference

CLUSTERS = (6, 10, 20, 50, 100)
LIKENESS = {"independent": 0.0, "partly alike": 0.3, "identical": 1.0}
Case = tuple[Estimate, float]
"""An estimate and the truth."""


class Population:
    """Clusters of episodes with a known share of successes."""

    def __init__(self, rng: np.random.Generator, clusters: int, likeness: float, *, largest: int = 5) -> None:
        sizes = rng.integers(1, largest + 1, clusters)
        self.rng = rng
        self.likeness = likeness
        self.keys = np.repeat(np.arange(clusters), sizes)
        self.clusters = clusters

    def chances(self, share: float) -> np.ndarray:
        """[episodes] chance of a success, the same within a cluster."""
        if self.likeness == 0:
            return np.full(len(self.keys), share)
        if self.likeness == 1:
            return (self.rng.random(self.clusters) < share).astype(float)[self.keys]
        weight = (1 - self.likeness) / self.likeness
        return self.rng.beta(share * weight, (1 - share) * weight, self.clusters)[self.keys]

    def outcomes(self, share: float) -> np.ndarray:
        """[episodes] 0 or 1."""
        return (self.rng.random(len(self.keys)) < self.chances(share)).astype(float)


def _share(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.03, 0.97))


def right_or_wrong(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """AC@1, event recall, false positive rate: each episode is right or wrong."""
    population, truth = Population(rng, clusters, likeness), _share(rng)
    return clustered_mean(population.outcomes(truth).tolist(), population.keys.tolist()), truth


def graded(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """Avg@5, MRR, areas, mean TTD: each episode is worth something between 0 and 1, here fifths."""
    population, truth = Population(rng, clusters, likeness), _share(rng)
    values = rng.binomial(5, population.chances(truth)) / 5
    return clustered_mean(values.tolist(), population.keys.tolist()), truth


def _halves(rng: np.random.Generator, clusters: int, likeness: float) -> tuple[tuple, float, float, float]:
    faulty, healthy = Population(rng, clusters, likeness), Population(rng, max(6, clusters // 2), likeness)
    detected, quiet = _share(rng), _share(rng)
    outcomes = (faulty.outcomes(detected), faulty.keys.tolist(), healthy.outcomes(quiet), healthy.keys.tolist())
    return outcomes, detected, quiet, len(faulty.keys) / (len(faulty.keys) + len(healthy.keys))


def balanced(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """Balanced accuracy, with half as many clusters without a fault, at least six."""
    outcomes, detected, quiet, _ = _halves(rng, clusters, likeness)
    return balanced_accuracy(*outcomes), (detected + quiet) / 2


def matthews(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """Matthews correlation, on the same two halves."""
    outcomes, detected, quiet, share = _halves(rng, clusters, likeness)
    yes = share * detected + (1 - share) * (1 - quiet)
    return matthews_correlation(*outcomes), (detected + quiet - 1) * math.sqrt(share * (1 - share) / (yes * (1 - yes)))


def precision(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """Event precision: alarms in fault episodes are true or false, all others are false."""
    faulty, healthy = Population(rng, clusters, likeness), Population(rng, max(6, clusters // 2), likeness)
    truth, often, seldom = _share(rng), rng.uniform(0.3, 2), rng.uniform(0.02, 1)
    alarms = rng.poisson(often, len(faulty.keys))
    true = rng.binomial(alarms, faulty.chances(truth))
    false = rng.poisson(seldom, len(healthy.keys))
    keys = [*faulty.keys.tolist(), *(-1 - healthy.keys).tolist()]
    strata = [True] * len(alarms) + [False] * len(false)
    expected = len(alarms) * often * truth / (len(alarms) * often + len(false) * seldom)
    return clustered_ratio([*true, *np.zeros(len(false))], [*alarms, *false], keys, strata), float(expected)


def median(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """Median TTD: up to nearly half of the episodes are misses."""
    population, missed = Population(rng, clusters, likeness), rng.uniform(0, 0.45)
    shared = rng.normal(size=clusters)[population.keys]
    delays = math.sqrt(likeness) * shared + math.sqrt(1 - likeness) * rng.normal(size=len(shared))
    delays[population.outcomes(missed) == 1] = math.inf
    return clustered_median(delays.tolist(), population.keys.tolist()), float(norm.ppf(0.5 / (1 - missed)))


def rate(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """Alarms per hour: the rates of clusters are equal, or vary by up to their mean."""
    population, truth = Population(rng, clusters, likeness, largest=3), 10 ** rng.uniform(-0.7, 0.7)
    varied = rng.gamma(1 / likeness, likeness, clusters)[population.keys] if likeness else 1.0
    counts = rng.poisson(truth * varied * np.ones(len(population.keys)))
    return event_rate(counts.tolist(), [1.0] * len(counts), population.keys.tolist()), truth


def difference(rng: np.random.Generator, clusters: int, likeness: float) -> Case:
    """Difference of two methods on the same episodes."""
    population = Population(rng, clusters, likeness)
    better, worse = rng.uniform(0.03, 0.5), rng.uniform(0.03, 0.5)
    differ = population.chances(better + worse)
    first = rng.random(len(differ)) < differ
    sign = np.where(rng.random(len(differ)) < better / (better + worse), 1.0, -1.0)
    return mean_difference((first * sign).tolist(), population.keys.tolist()), better - worse


STATISTICS: dict[str, Callable[[np.random.Generator, int, float], Case]] = {
    "share of right answers": right_or_wrong,
    "graded score": graded,
    "balanced accuracy": balanced,
    "MCC": matthews,
    "event precision": precision,
    "median TTD": median,
    "alarms per hour": rate,
    "difference": difference,
}


def coverages(samples: int) -> Iterator[tuple[str, str, list[float], list[float]]]:
    """Yield statistic, likeness, and by number of clusters coverage and share without interval."""
    for name, draw in STATISTICS.items():
        for likeness, amount in LIKENESS.items():
            covered, without = [], []
            for clusters in CLUSTERS:
                rng = np.random.default_rng([samples, clusters, list(STATISTICS).index(name), round(10 * amount)])
                cases = [draw(rng, clusters, amount) for _ in range(samples)]
                with_interval = [(e, truth) for e, truth in cases if e.interval_known]
                covered.append(float(np.mean([e.low <= truth <= e.high for e, truth in with_interval])))
                without.append(1 - len(with_interval) / len(cases))
            yield name, likeness, covered, without


@click.command(help=__doc__)
@click.option("--samples", default=2000, show_default=True, help="Populations for each figure.")
def main(samples: int) -> None:
    """Print the table."""
    print("| statistic | episodes of a cluster | " + " | ".join(f"{c} clusters" for c in CLUSTERS) + " |")
    print("|---|---|" + "---|" * len(CLUSTERS))
    for name, likeness, covered, without in coverages(samples):
        missing = [f" ({share:.0%} without)" if share >= 0.005 else "" for share in without]
        cells = [f"{share:.3f}{note}" for share, note in zip(covered, missing, strict=True)]
        print(f"| {name} | {likeness} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
