"""Rank services on a causal graph learned from metrics: RCD and MicroCause."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from faultset.baselines.contract import (
    Evidence,
    Ranking,
    TrainingFreeBaseline,
    best_by_service,
    episode_rng,
    largest_first,
)
from faultset.baselines.features.metric_alarms import series_evidence, standardise_windows
from faultset.baselines.features.windows import Windows, localization_windows, most_deviating
from faultset.baselines.registry import localizer
from faultset.baselines.stats.dependence import (
    Codes,
    LaggedLinks,
    chi_square,
    kmeans_bins,
    lagged_links,
    partial_correlation,
)
from faultset.baselines.stats.scaling import Matrix, bonferroni_sigmas, sustained
from faultset.datasets.views import EpisodeView

CHUNK = 5
BINS = 5
LOCAL_LEVEL = 0.01
LAST_LEVEL = 0.001
LEVEL_STEP = 0.1
MAX_RANKED = 10
MAX_CONDITIONING = 3
RCD_SERIES_PER_SERVICE = 3
RUNS = 10


class FNodeTests:
    """Cached chi-square tests of binned series and the F-node, which separates reference and test samples.

    Parameters
    ----------
    reference, values
        [n, d] and [T, d]
    """

    def __init__(self, reference: Matrix, values: Matrix, *, bins: int = BINS) -> None:
        # Round, so that errors of unit conversion do not move a value into the next bin.
        self._codes: Codes = kmeans_bins(np.round(np.vstack([reference, values]), 9), bins=bins)
        self._after = np.repeat([0, 1], [len(reference), len(values)]).astype(np.int64)
        self._cache: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}

    def test(self, column: int, given: tuple[int, ...] = ()) -> tuple[float, float]:
        """Test a column and the F-node for independence given other columns; return the p-value and the statistic."""
        key = (column, tuple(sorted(given)))
        if key not in self._cache:
            others = [self._codes[:, other] for other in key[1]]
            self._cache[key] = chi_square(self._after, self._codes[:, column], others)
        return self._cache[key]

    def neighbours(self, columns: Sequence[int], level: float) -> list[int]:
        """Return the columns that depend on the F-node given any small set of other columns, sorted by p-value."""
        near = [column for column in columns if self.test(column)[0] <= level]
        for size in range(1, MAX_CONDITIONING + 1):
            if len(near) <= size:
                break
            for column in list(near):
                for conditioning_set in combinations([other for other in near if other != column], size):
                    if self.test(column, conditioning_set)[0] > level:
                        near.remove(column)
                        break
        return sorted(near, key=lambda column: (self.test(column)[0], -self.test(column)[1], column))


def rank_by_f_node(tests: FNodeTests, columns: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Run RCD once and return the remaining columns in order of suspicion."""
    remaining = list(columns)
    while True:
        before = len(remaining)
        mixed = rng.permutation(sorted(remaining)).tolist()
        chunks = [mixed[start : start + CHUNK] for start in range(0, len(mixed), CHUNK)]
        remaining = [column for chunk in chunks for column in _first_neighbours(tests, chunk)]
        if len(remaining) <= CHUNK or len(remaining) >= before:
            break
    remaining = sorted(remaining, key=lambda column: (-tests.test(column)[1], column))[:MAX_RANKED]
    ranked: list[int] = []
    for level in np.arange(LAST_LEVEL, 1.0, LEVEL_STEP):
        ranked += [column for column in tests.neighbours(remaining, float(level)) if column not in ranked]
        if len(ranked) == len(remaining):
            break
    return ranked


def _first_neighbours(tests: FNodeTests, chunk: Sequence[int]) -> list[int]:
    for level in np.arange(LOCAL_LEVEL, 1.0, LEVEL_STEP):
        neighbours = tests.neighbours(chunk, float(level))
        if neighbours:
            return neighbours
    return []


def mean_reciprocal_ranks(
    tests: FNodeTests, columns: Sequence[int], rng: np.random.Generator, *, runs: int = RUNS
) -> dict[int, float]:
    """Return the mean reciprocal rank of each ranked column over several runs."""
    total: dict[int, float] = {}
    for _ in range(runs):
        for rank, column in enumerate(rank_by_f_node(tests, columns, rng), start=1):
            total[column] = total.get(column, 0.0) + 1 / rank / runs
    return total


@localizer(
    "rcd",
    title="RCD",
    paper="Ikram et al., RCD, NeurIPS 2022",
    stochastic=True,
    speed="fast",
    complexity="O(R·V·2^c·T), R runs, V ≤ 3 per service in chunks of c = 5",
    departures=(
        "Only the three series of each service that deviate most are used, each of a different role.",
        "Conditioning sets have at most three series, and the last phase has at most ten.",
        "The reciprocal ranks of ten runs with different chunks are averaged.",
        "Samples have the metrics' own interval, because the tests have no power with tens of samples.",
    ),
)
class RCD(TrainingFreeBaseline):
    """Rank services by the series that an intervention at the alarm changes directly.

    The F-node is 0 in the reference and 1 in the test window. A constraint-based search keeps the series that depend
    on it given any small set of other series. The search runs on random chunks of the series, and again on the
    remaining series until few are left.

    Parameters
    ----------
    runs
        Number of runs that are averaged.
    per_service
        Number of series per service.

    References
    ----------
    Ikram, Chakraborty, Mitra, Saini, Bagchi, Kocaoglu, Root cause analysis of failures in microservices through
    causal discovery, NeurIPS 2022.
    """

    def __init__(self, *, runs: int = RUNS, per_service: int = RCD_SERIES_PER_SERVICE, seed: int = 0) -> None:
        self.runs = runs
        self.per_service = per_service
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns, step_s=episode.context.sampling_step_s)
        if windows.empty:
            return Ranking.abstain()
        healthy, recent = standardise_windows(windows)
        columns = most_deviating(episode, windows, recent, per_service=self.per_service)
        tests = FNodeTests(healthy[:, columns], recent[:, columns])
        rng = episode_rng(self.seed, episode.episode)
        mean_ranks = mean_reciprocal_ranks(tests, range(len(columns)), rng, runs=self.runs)
        metrics = {windows.series[columns[number]]: score for number, score in mean_ranks.items()}
        evidence = [
            Evidence(service=key[0], subject=key[1], score=metrics[key], detail="mean reciprocal rank over runs")
            for key in largest_first(metrics)[:10]
        ]
        return Ranking.of(best_by_service(metrics), episode.services, evidence, metrics)


MICROCAUSE_SERIES_PER_SERVICE = 2
LAGS = 3
BACKWARD = 0.2
SHARE = 0.5
STEPS = 1000
SUSTAINED_STEPS = 3
FRONT_ROLES = ("latency", "errors")


def transition_matrix(links: LaggedLinks, strength: Matrix, front: int, *, backward: float = BACKWARD) -> Matrix:
    """Return the transition probabilities [k, k] from row to column.

    The walk moves from an effect to a cause in proportion to the strength of the cause, and from a cause to an effect
    in proportion to `backward` times the strength of the effect. It may stay where no cause is as strong as the effect.
    It leaves the front end if it can, and stays at series without neighbours.
    """
    count = len(strength)
    weight = np.zeros((count, count))
    best = np.zeros(count)
    for cause, effect in sorted(links.links):
        weight[effect, cause] = max(weight[effect, cause], strength[cause])
        weight[cause, effect] = max(weight[cause, effect], backward * strength[effect])
        best[effect] = max(best[effect], strength[cause])
    rest = np.maximum(0.0, strength - best)
    rest[front] = 0.0
    weight[np.arange(count), np.arange(count)] = rest
    total = weight.sum(axis=1)
    weight[total <= 0, :] = np.eye(count)[total <= 0]
    return weight / weight.sum(axis=1, keepdims=True)


def expected_visits(transitions: Matrix, front: int, *, steps: int = STEPS) -> Matrix:
    """Return the expected number of visits [k] of a walk that starts at the front end."""
    probability = np.zeros(len(transitions))
    probability[front] = 1.0
    total = np.zeros(len(transitions))
    for _ in range(steps):
        probability = probability @ transitions
        total += probability
    return total


@localizer(
    "micro-cause",
    title="MicroCause",
    paper="Meng et al., MicroCause, IWQoS 2020",
    speed="fast",
    complexity="O(V²·L·T + V²·c²·T), V ≤ 2 series per service, L lags, c ≤ 6 conditions",
    departures=(
        "Only the two series of each service that deviate most are used, each of a different role; the paper ranks "
        "series within one service.",
        "Delays are at most three steps, and tests condition on at most three causes of a series.",
        "Links within one step are followed both ways, because calls are shorter than a step.",
        "The degree of anomaly is the excess over the limit of k-sigma, clipped at 100 standard deviations of the "
        "reference, because SPOT needs more samples.",
        "Visits are expected values for 1,000 steps instead of simulated.",
    ),
)
class MicroCause(TrainingFreeBaseline):
    """Rank series by visits of a random walk from the front end and by their degree of anomaly.

    Parameters
    ----------
    share
        Weight of visits; the weight of the degree of anomaly is 1 minus this.
    backward
        Weight of steps from a cause to its effect, as a share of the strength of the effect.

    References
    ----------
    Meng et al., Localizing failure root causes in a microservice through causality inference, IWQoS 2020.
    """

    def __init__(
        self, *, per_service: int = MICROCAUSE_SERIES_PER_SERVICE, share: float = SHARE, backward: float = BACKWARD
    ) -> None:
        self.per_service = per_service
        self.share = share
        self.backward = backward

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        healthy, recent = standardise_windows(windows)
        columns = most_deviating(episode, windows, recent, per_service=self.per_service)
        front_column = choose_front_series(episode, windows, recent)
        if front_column is None:
            return Ranking.abstain()
        columns = sorted({*columns, front_column})
        front = columns.index(front_column)
        series = np.vstack([healthy, recent])[:, columns]
        links = lagged_links(series, lags=LAGS)
        strength = correlate_front(series, links, front)
        visits = expected_visits(transition_matrix(links, strength, front, backward=self.backward), front)
        visits[front] = 0.0
        limit = bonferroni_sigmas(len(windows.series), samples=len(windows.reference))
        lasting = sustained(recent[:, columns], min(SUSTAINED_STEPS, len(recent))).max(axis=0)
        excess = np.maximum(0.0, lasting / limit - 1)
        score = self.share * _divide_by_largest(visits) + (1 - self.share) * _divide_by_largest(excess)
        chosen = [windows.series[column] for column in columns]
        metrics = dict(zip(chosen, score.tolist(), strict=True))
        evidence = series_evidence(
            chosen,
            score,
            [chosen.index(key) for key in largest_first(metrics)[:10]],
            lambda index: f"{visits[index]:.0f} visits, {lasting[index]:.1f} sigmas",
        )
        return Ranking.of(best_by_service(metrics), episode.services, evidence, metrics)


def choose_front_series(episode: EpisodeView, windows: Windows, recent: Matrix) -> int | None:
    """Return the front end's latency column that deviates most, or else its errors column; None if it has neither."""
    size = np.abs(recent).max(axis=0)
    for role in FRONT_ROLES:
        columns = [
            column
            for column, (service, metric) in enumerate(windows.series)
            if service == episode.context.workload_entry and episode.catalogue.role_of(metric) == role
        ]
        if columns and size[columns].max() > 0:
            return max(columns, key=lambda column: (size[column], -column))
    return None


def correlate_front(series: Matrix, links: LaggedLinks, front: int) -> Matrix:
    """Return the absolute partial correlation of each series with the front end, given their delayed causes."""
    earliest = max([lag for causes in links.causes for _, lag in causes], default=0)
    strength = np.zeros(series.shape[1])
    for index in range(series.shape[1]):
        delayed_causes = sorted({*links.causes[front], *links.causes[index]})
        conditions = [series[earliest - lag : len(series) - lag, other] for other, lag in delayed_causes]
        matrix = np.column_stack(conditions) if conditions else np.empty((len(series) - earliest, 0))
        if matrix.shape[1] + 3 < len(matrix):
            strength[index] = abs(partial_correlation(series[earliest:, index], series[earliest:, front], matrix))
    strength[front] = 0.0
    return strength


def _divide_by_largest(values: Matrix) -> Matrix:
    return values / values.max() if values.max(initial=0.0) > 0 else np.zeros_like(values)
