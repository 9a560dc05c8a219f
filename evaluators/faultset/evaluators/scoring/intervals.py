"""95 % intervals of shares, means, medians and rates over clusters of episodes.

A cluster is (application, fault, target): ten runs of one fault on one service are nearly one observation. Nothing is
resampled, so the same data give the same interval. `benchmarks/interval_coverage.py` simulates the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
Z95 = 1.959963984540054
_NEGLIGIBLE = 1e-12
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Uncertainty of an estimate; arrays hold many estimates at once."""

    variance: Any
    """Variance of the estimate between clusters."""
    clusters: Any
    """Kish's effective number of clusters, which is smaller if a few clusters hold most of the weight."""
    df: Any
    """Degrees of freedom of the variance: the mean of the number of clusters and Kish's number, minus one."""


def spread_over_clusters(contributions: Numbers, weights: Numbers) -> Spread:
    """Return the spread of an estimate that is a sum over clusters.

    `contributions`: [..., clusters] Linearised influence of each cluster on the estimate.
    `weights`: [..., clusters] Amount of data in each cluster.

    References
    ----------
    Cameron and Miller, A practitioner's guide to cluster-robust inference, 2015; Kish, Survey sampling, 1965.
    """
    count = contributions.shape[-1]
    centred = contributions - contributions.mean(axis=-1, keepdims=True)
    effective = weights.sum(axis=-1) ** 2 / np.maximum((weights**2).sum(axis=-1), _NEGLIGIBLE)
    return Spread(
        variance=count / max(count - 1, 1) * (centred**2).sum(axis=-1),
        clusters=effective,
        df=np.maximum((effective + count) / 2 - 1, 1.0),
    )


def pooled(first: Spread, second: Spread) -> Spread:
    """Add the spreads of two independent halves, with degrees of freedom by Welch and Satterthwaite."""
    variance = first.variance + second.variance
    terms = first.variance**2 / first.df + second.variance**2 / second.df
    positive = terms > 0
    return Spread(
        variance=variance,
        clusters=first.clusters + second.clusters,
        df=np.maximum(np.where(positive, variance**2 / np.where(positive, terms, 1.0), first.df + second.df), 1.0),
    )


def wilson(share: Any, trials: Any, z: Any = Z95) -> tuple[Any, Any]:
    """Return the Wilson score interval of a share, which also works at 0 and 1, unlike p ± 2 SE."""
    centre = share + z * z / (2 * trials)
    half = z * np.sqrt(np.maximum(share * (1 - share), 0) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return np.maximum(0.0, (centre - half) / scale), np.minimum(1.0, (centre + half) / scale)


def share_interval(share: Any, spread: Spread) -> tuple[Any, Any]:
    """Return Wilson's interval with the number of trials that the variance between clusters implies.

    The quantile is Student's because the variance is estimated. It approaches the normal quantile as clusters become
    all right or all wrong, because the share then determines the variance. Identical clusters count as one trial each.
    """
    from scipy.special import stdtrit

    bernoulli = np.asarray(share * (1 - share), dtype=float)
    variance = np.asarray(spread.variance, dtype=float)
    differs = variance > _NEGLIGIBLE
    trials = np.where(differs, bernoulli / np.where(differs, variance, 1.0), spread.clusters)
    trials = np.maximum(trials, _NEGLIGIBLE)
    largest = bernoulli / spread.clusters
    extremity = np.clip(np.where(largest > 0, variance / np.where(largest > 0, largest, 1.0), 1.0), 0.0, 1.0)
    student = stdtrit(spread.df, (1 + LEVEL) / 2)
    quantile = np.where(differs, student + (Z95 - student) * extremity**2, Z95)
    return wilson(share, trials, quantile)


def mean_interval(mean: Any, spread: Spread) -> tuple[Any, Any]:
    """Return Student's interval of an unbounded mean."""
    from scipy.special import stdtrit

    half = stdtrit(spread.df, (1 + LEVEL) / 2) * np.sqrt(spread.variance)
    return mean - half, mean + half


TOO_FEW = "too few episodes"
"""Beginning of the reason if a value is missing because there was too little data."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval.

    `n` is the number of episodes, `k` the sum over them. `reason` says why the value or the interval is missing.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    k: float | None = None
    method: str = ""
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a value at all."""
        return not math.isnan(self.value)

    @property
    def interval_known(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))

    def with_interval(self, low: float, high: float, *, method: str) -> Estimate:
        """Return the same value with an interval and the name of its method."""
        return replace(self, low=float(low), high=float(high), method=method)

    def without_interval(self, reason: str) -> Estimate:
        """Return the same value with the reason for the missing interval."""
        return replace(self, reason=reason)


def unknown(reason: str, n: int = 0) -> Estimate:
    """Return an estimate without a value, and the reason."""
    return Estimate(value=math.nan, n=n, reason=reason)


MINIMUM_FOR_TESTS = 6
"""The smallest two-sided p of a sign-flip test over C clusters is 2 / 2**C; with fewer than 6 it exceeds 0.05."""
SHARE = (0.0, 1.0)
_ONE_CLUSTER = "one cluster: no interval"


def median_or_nan(values: Iterable[float | None]) -> float:
    """Return the median of the values that are not None; NaN if there are none."""
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers else math.nan


def group(keys: Sequence[Hashable]) -> list[npt.NDArray[np.intp]]:
    """Return the indices of each cluster, in order of first appearance."""
    members: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        members.setdefault(key, []).append(i)
    return [np.array(indices, dtype=np.intp) for indices in members.values()]


def cluster_sums(values: npt.ArrayLike, keys: Sequence[Hashable]) -> Numbers:
    """Return the sums [..., clusters] of the last axis over each cluster."""
    data = np.asarray(values, dtype=float)
    return np.stack([data[..., members].sum(axis=-1) for members in group(keys)], axis=-1)


def mean_and_spread(values: npt.ArrayLike, keys: Sequence[Hashable]) -> tuple[float, Spread]:
    """Return the mean over episodes, and its spread over clusters."""
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    sizes = cluster_sums(np.ones(len(data)), keys)
    return mean, spread_over_clusters(cluster_sums(data - mean, keys) / len(data), sizes)


def clustered_mean(
    values: Sequence[float], keys: Sequence[Hashable], *, bounds: tuple[float, float] | None = SHARE
) -> Estimate:
    """Return the mean over episodes with its interval over clusters.

    NaN values are left out; `n` counts the others.

    `bounds`: smallest and largest possible value, for instance 0 and 1 for a share. The interval is then Wilson's,
    scaled to the bounds. Without bounds it is Student's, and missing if all clusters have the same value.
    """
    scored = [(v, k) for v, k in zip(values, keys, strict=True) if not math.isnan(v)]
    if not scored:
        return unknown("no scored episode")
    data = np.array([v for v, _ in scored])
    names = [k for _, k in scored]
    mean, spread = mean_and_spread(data, names)
    estimate = Estimate(value=mean, n=len(data), k=float(data.sum()))
    count = len(set(names))
    if count < 2:
        return estimate.without_interval(_ONE_CLUSTER)
    if bounds is None or not bounds[0] < bounds[1]:
        if data.min() == data.max():
            return estimate.without_interval("no spread between clusters")
        return estimate.with_interval(*mean_interval(mean, spread), method=f"Student's t over {count} clusters")
    low, high = bounds
    width = high - low
    scaled = Spread(variance=spread.variance / width**2, clusters=spread.clusters, df=spread.df)
    ends = share_interval(min(1.0, max(0.0, (mean - low) / width)), scaled)
    return estimate.with_interval(*(low + width * end for end in ends), method=f"Wilson over {count} clusters")


def clustered_median(values: Sequence[float], keys: Sequence[Hashable]) -> Estimate:
    """Return the upper median with Woodruff's interval (1952) over clusters; a miss is +inf."""
    if not values:
        return unknown("no scored episode")
    data = np.asarray(values, dtype=float)
    middle = float(np.sort(data)[len(data) // 2])
    estimate = Estimate(value=middle, n=len(data))
    count = len(set(keys))
    if count < 2:
        return estimate.without_interval(_ONE_CLUSTER)
    candidates = np.unique(data)
    is_at_or_below = (data <= candidates[:, None]).astype(float)
    share = is_at_or_below.mean(axis=-1)
    sizes = cluster_sums(np.ones(len(data)), keys)
    contributions = cluster_sums(is_at_or_below - share[:, None], keys) / len(data)
    lower, upper = share_interval(
        share, spread_over_clusters(contributions, np.broadcast_to(sizes, contributions.shape))
    )
    above_half = lower > 0.5
    high = float(candidates[above_half.argmax()]) if above_half.any() else math.inf
    low = float(candidates[(upper >= 0.5).argmax()])
    return estimate.with_interval(min(low, middle), max(high, middle), method=f"Woodruff over {count} clusters")


def clustered_ratio(
    parts: Sequence[float], wholes: Sequence[float], keys: Sequence[Hashable], strata: Sequence[Hashable] | None = None
) -> Estimate:
    """Return a ratio of two sums over episodes, such as true alarms over all alarms.

    `parts`, `wholes`: terms of the two sums, one for each episode; a part is at most its whole.
    `strata`: up to two kinds of episodes, such as episodes with and without a fault, whose numbers are fixed by design.
    """
    numerators, denominators = np.asarray(parts, dtype=float), np.asarray(wholes, dtype=float)
    if len(numerators) == 0:
        return unknown("no scored episode")
    total = denominators.sum()
    if total == 0:
        return unknown("undefined on these episodes", len(numerators))
    share = float(numerators.sum() / total)
    estimate = Estimate(value=share, n=len(numerators))
    if len(set(keys)) < 2:
        return estimate.without_interval(_ONE_CLUSTER)
    influence = (numerators - share * denominators) / total
    kinds = np.array([0] * len(numerators) if strata is None else [strata[0] == stratum for stratum in strata])
    spreads = []
    for kind in dict.fromkeys(kinds.tolist()):
        indices = np.flatnonzero(kinds == kind).tolist()
        names = [keys[i] for i in indices]
        spreads.append(
            spread_over_clusters(cluster_sums(influence[indices], names), cluster_sums(denominators[indices], names))
        )
    spread = spreads[0] if len(spreads) == 1 else pooled(*spreads)
    return estimate.with_interval(*share_interval(share, spread), method=f"Wilson over {len(set(keys))} clusters")


def event_rate(counts: Sequence[float], durations: Sequence[float], keys: Sequence[Hashable]) -> Estimate:
    """Return the number of events per unit of watched time.

    The interval is for a Poisson count with Jeffreys' prior. If clusters vary more than Poisson counts, the count
    and the time are divided by the dispersion. Without any event the interval is from 0 to about 2.5 divided by the
    time.

    `counts`, `durations`: events and watched time of each episode, for instance in hours. A count may be a mean over
    seeds.
    """
    if sum(durations) <= 0:
        return unknown("no observed time without a fault")
    counts_by_cluster, durations_by_cluster = cluster_sums(counts, keys), cluster_sums(durations, keys)
    count, total = float(counts_by_cluster.sum()), float(durations_by_cluster.sum())
    estimate = Estimate(value=count / total, n=len(counts), k=count)
    low, high = _compute_rate_interval(count, total, counts_by_cluster, durations_by_cluster)
    return estimate.with_interval(low, high, method=f"Poisson with dispersion over {len(counts_by_cluster)} clusters")


def _compute_rate_interval(
    count: float, total: float, counts: np.ndarray, durations: np.ndarray
) -> tuple[float, float]:
    from scipy.special import gammaincinv, stdtrit

    excess, dispersion = 0.0, 1.0
    if count > 0 and len(counts) > 1:
        spread = spread_over_clusters(counts - count / total * durations, durations)
        observed = max(1.0, float(spread.variance) / count)
        excess = (observed - 1) / observed
        student = float(stdtrit(max(spread.clusters / 2 - 1, 1.0), (1 + LEVEL) / 2))
        dispersion = observed * (1 + ((student / Z95) ** 2 - 1) * excess)
    events, time = count / dispersion, total / dispersion
    tail = (1 - LEVEL) / 2
    low = float(gammaincinv(events + 0.5 * (1 - excess), tail))
    high = float(gammaincinv(events + 0.5 + excess, 1 - tail))
    return (low / time if count else 0.0), high / time
