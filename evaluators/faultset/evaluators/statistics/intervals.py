"""95 % intervals of shares, means, medians and rates over clusters of episodes.

A cluster is (application, fault, target), because ten runs of one fault on one service are nearly one observation.
Nothing is resampled: the same data give the same interval. `benchmarks/interval_coverage.py` simulates the coverage."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
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
    """How uncertain an estimate is; numbers, or arrays for many estimates at once."""

    variance: Any
    """Of the estimate, between clusters."""
    clusters: Any
    """Effective number: Kish's, which is smaller where a few clusters hold most of the weight."""
    df: Any
    """Degrees of freedom of the variance: one less than the mean of the number of clusters and of Kish's."""


def spread_over_clusters(contributions: Numbers, weights: Numbers) -> Spread:
    """Return the spread of an estimate that is a sum over clusters.

    Parameters
    ----------
    contributions
        [..., clusters] what each cluster adds to the error of the estimate: its linearised influence.
    weights
        [..., clusters] how much data each cluster has.

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
    """Add the spreads of two independent halves; degrees of freedom after Welch and Satterthwaite."""
    variance = first.variance + second.variance
    parts = first.variance**2 / first.df + second.variance**2 / second.df
    known = parts > 0
    return Spread(
        variance=variance,
        clusters=first.clusters + second.clusters,
        df=np.maximum(np.where(known, variance**2 / np.where(known, parts, 1.0), first.df + second.df), 1.0),
    )


def wilson(share: Any, trials: Any, z: Any = Z95) -> tuple[Any, Any]:
    """Wilson score interval of a share of independent trials; still sensible at 0 and 1, where p ± 2 SE is not."""
    centre = share + z * z / (2 * trials)
    half = z * np.sqrt(np.maximum(share * (1 - share), 0) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return np.maximum(0.0, (centre - half) / scale), np.minimum(1.0, (centre + half) / scale)


def share_interval(share: Any, spread: Spread) -> tuple[Any, Any]:
    """Wilson's interval with as many trials as the variance between clusters is worth.

    The quantile is Student's, because the variance is estimated. Where clusters are all or nothing the share itself
    says what the variance is, and the quantile goes to the normal one. Where clusters do not differ at all, each is
    one trial.
    """
    from scipy.special import stdtrit

    bernoulli = np.asarray(share * (1 - share), dtype=float)
    variance = np.asarray(spread.variance, dtype=float)
    seen = variance > _NEGLIGIBLE
    trials = np.where(seen, bernoulli / np.where(seen, variance, 1.0), spread.clusters)
    trials = np.maximum(trials, _NEGLIGIBLE)
    largest = bernoulli / spread.clusters
    known = np.clip(np.where(largest > 0, variance / np.where(largest > 0, largest, 1.0), 1.0), 0.0, 1.0)
    student = stdtrit(spread.df, (1 + LEVEL) / 2)
    quantile = np.where(seen, student + (Z95 - student) * known**2, Z95)
    return wilson(share, trials, quantile)


def mean_interval(mean: Any, spread: Spread) -> tuple[Any, Any]:
    """Student's interval, for what has no bounds."""
    from scipy.special import stdtrit

    half = stdtrit(spread.df, (1 + LEVEL) / 2) * np.sqrt(spread.variance)
    return mean - half, mean + half


TOO_FEW = "too few episodes"
"""How the reason of a value begins that is missing because there was too little data."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval.

    `k` of `n` is given where the value is a count over episodes; `reason` says why a value or an interval
    is missing.
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
        """Whether there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def with_interval(self, low: float, high: float, *, method: str) -> Estimate:
        """Return the same value with an interval and how it was made."""
        return replace(self, low=float(low), high=float(high), method=method)

    def without_interval(self, reason: str) -> Estimate:
        """Return the same value with the reason why it has no interval."""
        return replace(self, reason=reason)


def unknown(reason: str, n: int = 0) -> Estimate:
    """An estimate that cannot be given, and why."""
    return Estimate(value=math.nan, n=n, reason=reason)


MINIMUM_FOR_TESTS = 6
"""With C clusters the smallest two-sided p of a sign-flip test is 2 / 2**C, so fewer can never reach 0.05."""
SHARE = (0.0, 1.0)
_ONE_CLUSTER = "one cluster: no interval"


def group(keys: Sequence[Hashable]) -> list[npt.NDArray[np.intp]]:
    """Indices of each cluster, clusters in order of first appearance."""
    members: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        members.setdefault(key, []).append(i)
    return [np.array(indices, dtype=np.intp) for indices in members.values()]


def cluster_sums(values: npt.ArrayLike, keys: Sequence[Hashable]) -> Numbers:
    """[..., clusters] sums of the last axis over each cluster."""
    data = np.asarray(values, dtype=float)
    return np.stack([data[..., members].sum(axis=-1) for members in group(keys)], axis=-1)


def mean_and_spread(values: npt.ArrayLike, keys: Sequence[Hashable]) -> tuple[float, Spread]:
    """Mean over episodes, and its spread over clusters."""
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    sizes = cluster_sums(np.ones(len(data)), keys)
    return mean, spread_over_clusters(cluster_sums(data - mean, keys) / len(data), sizes)


def clustered_mean(
    values: Sequence[float], keys: Sequence[Hashable], *, bounds: tuple[float, float] | None = SHARE
) -> Estimate:
    """Mean over episodes with its interval over clusters.

    NaN values are unscored: left out and counted, as `n` tells.

    Parameters
    ----------
    bounds
        Between which the values lie, for instance 0 and 1 of a share. The interval is then Wilson's, scaled to them,
        and no cluster need differ from another. Without bounds it is Student's, and there is none where all clusters
        have the same value.
    """
    kept = [(v, k) for v, k in zip(values, keys, strict=True) if not math.isnan(v)]
    if not kept:
        return unknown("no scored episode")
    data = np.array([v for v, _ in kept])
    names = [k for _, k in kept]
    mean, spread = mean_and_spread(data, names)
    found = Estimate(value=mean, n=len(data), k=float(data.sum()))
    count = len(set(names))
    if count < 2:
        return found.without_interval(_ONE_CLUSTER)
    if bounds is None or not bounds[0] < bounds[1]:
        if data.min() == data.max():
            return found.without_interval("no spread between clusters")
        return found.with_interval(*mean_interval(mean, spread), method=f"Student's t over {count} clusters")
    low, high = bounds
    width = high - low
    scaled = Spread(variance=spread.variance / width**2, clusters=spread.clusters, df=spread.df)
    ends = share_interval(min(1.0, max(0.0, (mean - low) / width)), scaled)
    return found.with_interval(*(low + width * end for end in ends), method=f"Wilson over {count} clusters")


def clustered_median(values: Sequence[float], keys: Sequence[Hashable]) -> Estimate:
    """Median in which a miss is +inf (the upper middle value), with an interval over clusters.

    The interval holds each value below which the share of episodes may be one half (Woodruff, 1952).
    """
    if not values:
        return unknown("no scored episode")
    data = np.asarray(values, dtype=float)
    middle = float(np.sort(data)[len(data) // 2])
    found = Estimate(value=middle, n=len(data))
    count = len(set(keys))
    if count < 2:
        return found.without_interval(_ONE_CLUSTER)
    candidates = np.unique(data)
    below = (data <= candidates[:, None]).astype(float)
    share = below.mean(axis=-1)
    sizes = cluster_sums(np.ones(len(data)), keys)
    contributions = cluster_sums(below - share[:, None], keys) / len(data)
    lower, upper = share_interval(
        share, spread_over_clusters(contributions, np.broadcast_to(sizes, contributions.shape))
    )
    surely = lower > 0.5
    high = float(candidates[surely.argmax()]) if surely.any() else math.inf
    low = float(candidates[(upper >= 0.5).argmax()])
    return found.with_interval(min(low, middle), max(high, middle), method=f"Woodruff over {count} clusters")


def clustered_ratio(
    parts: Sequence[float], wholes: Sequence[float], keys: Sequence[Hashable], strata: Sequence[Hashable] | None = None
) -> Estimate:
    """Share of a whole that episodes add to unequally, such as true alarms among all alarms.

    Parameters
    ----------
    parts, wholes
        What each episode adds to the two sums; a part is at most its whole.
    strata
        Two kinds of episodes, such as those with and without a fault, whose numbers are given and not by chance.
    """
    part, whole = np.asarray(parts, dtype=float), np.asarray(wholes, dtype=float)
    if len(part) == 0:
        return unknown("no scored episode")
    total = whole.sum()
    if total == 0:
        return unknown("undefined on these episodes", len(part))
    share = float(part.sum() / total)
    found = Estimate(value=share, n=len(part))
    if len(set(keys)) < 2:
        return found.without_interval(_ONE_CLUSTER)
    influence = (part - share * whole) / total
    kinds = np.array([0] * len(part) if strata is None else [strata[0] == one for one in strata])
    spreads = []
    for kind in dict.fromkeys(kinds.tolist()):
        inside = np.flatnonzero(kinds == kind).tolist()
        own = [keys[i] for i in inside]
        spreads.append(spread_over_clusters(cluster_sums(influence[inside], own), cluster_sums(whole[inside], own)))
    spread = spreads[0] if len(spreads) == 1 else pooled(*spreads)
    return found.with_interval(*share_interval(share, spread), method=f"Wilson over {len(set(keys))} clusters")


def hourly_rate(counts: Sequence[float], hours: Sequence[float], keys: Sequence[Hashable]) -> Estimate:
    """Events per watched hour.

    The interval is that of a Poisson count with Jeffreys' prior. Where clusters differ by more than a Poisson count
    does, count and hours are divided by how much more. Without any event the lower end is 0 and the upper one about
    2.5 divided by the hours.

    Parameters
    ----------
    counts, hours
        Of each episode; a count that is a mean over seeds may have a fraction.
    """
    if sum(hours) <= 0:
        return unknown("no observed time without a fault")
    counts_by_cluster, hours_by_cluster = cluster_sums(counts, keys), cluster_sums(hours, keys)
    count, total = float(counts_by_cluster.sum()), float(hours_by_cluster.sum())
    found = Estimate(value=count / total, n=len(counts), k=count)
    low, high = _ends(count, total, counts_by_cluster, hours_by_cluster)
    return found.with_interval(low, high, method=f"Poisson with dispersion over {len(counts_by_cluster)} clusters")


def _ends(count: float, hours: float, counts: np.ndarray, hours_each: np.ndarray) -> tuple[float, float]:
    from scipy.special import gammaincinv, stdtrit

    excess, dispersion = 0.0, 1.0
    if count > 0 and len(counts) > 1:
        spread = spread_over_clusters(counts - count / hours * hours_each, hours_each)
        seen = max(1.0, float(spread.variance) / count)
        excess = (seen - 1) / seen
        student = float(stdtrit(max(spread.clusters / 2 - 1, 1.0), (1 + LEVEL) / 2))
        dispersion = seen * (1 + ((student / Z95) ** 2 - 1) * excess)
    events, time = count / dispersion, hours / dispersion
    tail = (1 - LEVEL) / 2
    low = float(gammaincinv(events + 0.5 * (1 - excess), tail))
    high = float(gammaincinv(events + 0.5 + excess, 1 - tail))
    return (low / time if count else 0.0), high / time
