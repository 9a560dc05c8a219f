"""RCD: which series depend on whether the alarm has been raised, given the other series?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.randomness import episode_rng
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.healthy_spreads import healthy_spreads
from faultset.baselines.features.series_selection import most_deviating
from faultset.baselines.features.windows import localization_windows
from faultset.baselines.stats.independence_tests import Codes, chi_square, kmeans_bins
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

CHUNK = 5
BINS = 5
LOCAL_LEVEL = 0.01
LAST_LEVEL = 0.001
LEVEL_STEP = 0.1
MOST_LAST = 10
MOST_GIVEN = 3
PER_SERVICE = 3
RUNS = 10


class FNodeTests:
    """Chi-square tests of binned series against a node that says whether a sample is from before or after.

    Results are kept, because runs that differ in their chunks ask the same questions.

    Parameters
    ----------
    reference, values
        [n, d] and [T, d]
    """

    def __init__(self, reference: Matrix, values: Matrix, *, bins: int = BINS) -> None:
        # rounded, or the last digit of a unit's conversion could move a value into the next bin
        self._codes: Codes = kmeans_bins(np.round(np.vstack([reference, values]), 9), bins=bins)
        self._after = np.repeat([0, 1], [len(reference), len(values)]).astype(np.int64)
        self._known: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}

    def test(self, column: int, given: tuple[int, ...] = ()) -> tuple[float, float]:
        """Return p-value and statistic of one column against the node, given others."""
        key = (column, tuple(sorted(given)))
        if key not in self._known:
            others = [self._codes[:, other] for other in key[1]]
            self._known[key] = chi_square(self._after, self._codes[:, column], others)
        return self._known[key]

    def neighbours(self, columns: Sequence[int], level: float) -> list[int]:
        """Columns that stay dependent on the node given any few others that do; smallest p-value alone first."""
        near = [column for column in columns if self.test(column)[0] <= level]
        for size in range(1, MOST_GIVEN + 1):
            if len(near) <= size:
                break
            for column in list(near):
                for given in combinations([other for other in near if other != column], size):
                    if self.test(column, given)[0] > level:
                        near.remove(column)
                        break
        return sorted(near, key=lambda column: (self.test(column)[0], -self.test(column)[1], column))


def rank_by_f_node(tests: FNodeTests, columns: Sequence[int], rng: np.random.Generator) -> list[int]:
    """One run of RCD: columns in order of suspicion, those that were ruled out early left out."""
    left = list(columns)
    while True:
        before = len(left)
        mixed = rng.permutation(sorted(left)).tolist()
        chunks = [mixed[start : start + CHUNK] for start in range(0, len(mixed), CHUNK)]
        left = [column for chunk in chunks for column in _first_neighbours(tests, chunk)]
        if len(left) <= CHUNK or len(left) >= before:
            break
    left = sorted(left, key=lambda column: (-tests.test(column)[1], column))[:MOST_LAST]
    ranked: list[int] = []
    for level in np.arange(LAST_LEVEL, 1.0, LEVEL_STEP):
        ranked += [column for column in tests.neighbours(left, float(level)) if column not in ranked]
        if len(ranked) == len(left):
            break
    return ranked


def _first_neighbours(tests: FNodeTests, chunk: Sequence[int]) -> list[int]:
    for level in np.arange(LOCAL_LEVEL, 1.0, LEVEL_STEP):
        found = tests.neighbours(chunk, float(level))
        if found:
            return found
    return []


def mean_reciprocal_ranks(
    tests: FNodeTests, columns: Sequence[int], rng: np.random.Generator, *, runs: int = RUNS
) -> dict[int, float]:
    """Mean over runs of one over the place of each column; columns that no run names are left out."""
    total: dict[int, float] = {}
    for _ in range(runs):
        for place, column in enumerate(rank_by_f_node(tests, columns, rng)):
            total[column] = total.get(column, 0.0) + 1 / (place + 1) / runs
    return total


@baseline(
    "rcd",
    title="RCD",
    task="localization",
    paper="Ikram et al., RCD, NeurIPS 2022",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    stochastic=True,
    speed="fast",
    complexity="O(R·V·2^c·T), R runs, V ≤ 3 per service in chunks of c = 5",
    departures=(
        "Only the three series of each service that deviate most take part, each of another role.",
        "Conditioning sets have at most three series, and the last phase at most ten.",
        "Ten runs with other chunks are averaged, each series by one over its place.",
        "Samples are those of the metrics' own interval, because the tests have no power with tens of them.",
    ),
)
class RCD(Untrained):
    """Rank services by the series that an intervention at the alarm changes directly.

    A node that is 0 before and 1 after the alarm is added to the series; a constraint-based search keeps those that
    depend on it given any others. Series are searched in random chunks, and what is left again, until few are left.

    Parameters
    ----------
    runs
        How many runs with other chunks are averaged.
    per_service
        Series of each service that take part.

    References
    ----------
    Ikram, Chakraborty, Mitra, Saini, Bagchi, Kocaoglu, Root cause analysis of failures in microservices through
    causal discovery, NeurIPS 2022.
    """

    def __init__(self, *, runs: int = RUNS, per_service: int = PER_SERVICE, seed: int = 0) -> None:
        self.runs = runs
        self.per_service = per_service
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their first series."""
        windows = localization_windows(episode, alarm_ns, step_s=episode.context.sampling_step_s)
        if windows.empty:
            return Ranking.abstain()
        healthy, since = healthy_spreads(windows)
        columns = most_deviating(episode, windows, since, per_service=self.per_service)
        tests = FNodeTests(healthy[:, columns], since[:, columns])
        rng = episode_rng(self.seed, episode.episode)
        found = mean_reciprocal_ranks(tests, range(len(columns)), rng, runs=self.runs)
        metrics = {windows.series[columns[place]]: score for place, score in found.items()}
        scores: dict[str, float] = {}
        for (service, _), score in metrics.items():
            scores[service] = max(scores.get(service, 0.0), score)
        evidence = [
            Evidence(service=service, subject=metric, score=score, detail="mean of 1 / place over runs")
            for (service, metric), score in sorted(metrics.items(), key=lambda item: (-item[1], item[0]))
        ]
        return Ranking.of(scores, episode.services, evidence[:10], metrics)
