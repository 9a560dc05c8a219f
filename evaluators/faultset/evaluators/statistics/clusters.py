"""Means over episodes that repeat the same problem: standard error and bootstrap over whole clusters.

Ten runs of one fault on one service are nearly one observation. A cluster is (application, fault, target);
clusters are resampled whole. Few clusters are enumerated instead of sampled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.evaluators.statistics.estimates import Estimate, unknown
from faultset.evaluators.statistics.rates import wilson_interval

RESAMPLES = 2000
ENUMERATE_UP_TO = 5
MINIMUM_FOR_TESTS = 6
"""With C clusters the smallest two-sided p of a sign-flip test is 2 / 2**C, so fewer can never reach 0.05."""


def group(keys: Sequence[Hashable]) -> list[npt.NDArray[np.intp]]:
    """Indices of each cluster, clusters in order of first appearance."""
    members: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        members.setdefault(key, []).append(i)
    return [np.array(indices, dtype=np.intp) for indices in members.values()]


def clustered_se(values: npt.ArrayLike, keys: Sequence[Hashable]) -> float:
    """Standard error of the mean with finite-cluster correction (Miller, arXiv 2411.00640).

    NaN with fewer than two clusters.
    """
    data = np.asarray(values, dtype=float)
    clusters = group(keys)
    if len(clusters) < 2:
        return math.nan
    deviations = np.array([(data[c] - data.mean()).sum() for c in clusters])
    return float(math.sqrt(len(clusters) / (len(clusters) - 1) * (deviations**2).sum()) / len(data))


def effective_size(n: int, cluster_size: float, correlation: float) -> float:
    """Independent episodes that n clustered ones are worth."""
    return n / (1 + (cluster_size - 1) * correlation)


def draws(clusters: int, seed: int, resamples: int = RESAMPLES) -> npt.NDArray[np.intp]:
    """Cluster numbers of every resample, one resample per row; all of them when there are few clusters."""
    if clusters <= ENUMERATE_UP_TO:
        return np.array(list(itertools.product(range(clusters), repeat=clusters)), dtype=np.intp)
    return np.random.default_rng(seed).integers(0, clusters, size=(resamples, clusters))


def resampled_means(values: npt.ArrayLike, keys: Sequence[Hashable], seed: int = 0) -> npt.NDArray[np.float64]:
    """Mean over all episodes of every resample of whole clusters."""
    data = np.asarray(values, dtype=float)
    clusters = group(keys)
    sums = np.array([data[c].sum() for c in clusters])
    sizes = np.array([len(c) for c in clusters])
    picked = draws(len(clusters), seed)
    return sums[picked].sum(axis=1) / sizes[picked].sum(axis=1)


def clustered_mean(values: Sequence[float], keys: Sequence[Hashable], seed: int = 0) -> Estimate:
    """Mean over episodes with a percentile interval from the clustered bootstrap.

    NaN values are unscored: left out and counted, as `n` tells. Where every episode has the same value 0 or 1
    resampling cannot see any spread; the interval is then Wilson's with clusters as the number of trials.
    """
    kept = [(v, k) for v, k in zip(values, keys, strict=True) if not math.isnan(v)]
    if not kept:
        return unknown("no scored episode")
    data = np.array([v for v, _ in kept])
    names = [k for _, k in kept]
    count = len(set(names))
    mean = float(data.mean())
    total = float(data.sum())
    if count < 2:
        return Estimate(value=mean, n=len(data), k=total, reason="one cluster: no interval")
    if data.min() == data.max():
        if mean not in (0.0, 1.0):
            return Estimate(value=mean, n=len(data), k=total, reason="no spread between clusters")
        low, high = wilson_interval(mean * count, count)
        return Estimate(value=mean, low=low, high=high, n=len(data), k=total, method="Wilson over clusters")
    low, high = np.quantile(resampled_means(data, names, seed), [0.025, 0.975])
    return Estimate(value=mean, low=float(low), high=float(high), n=len(data), k=total, method=_method(count))


def clustered_statistic(
    statistic: Callable[[Sequence[Any]], float], items: Sequence[Any], keys: Sequence[Hashable], seed: int = 0
) -> Estimate:
    """Any statistic of a list of episodes with a percentile interval over resampled clusters.

    Resamples in which the statistic is undefined are left out; +inf is kept, as in medians with misses.
    """
    value = statistic(items)
    if math.isnan(value):
        return unknown("undefined on these episodes", len(items))
    clusters = group(keys)
    if len(clusters) < 2:
        return Estimate(value=value, n=len(items), reason="one cluster: no interval")
    results = np.array([
        statistic([items[i] for c in pick for i in clusters[c]]) for pick in draws(len(clusters), seed, 500)
    ])  # fmt: skip
    results = np.sort(results[~np.isnan(results)])
    if len(results) == 0:
        return Estimate(value=value, n=len(items), reason="undefined in every resample")
    low, high = results[int(0.025 * (len(results) - 1))], results[math.ceil(0.975 * (len(results) - 1))]
    return Estimate(value=value, low=float(low), high=float(high), n=len(items), method=_method(len(clusters), 500))


def _method(clusters: int, resamples: int = RESAMPLES) -> str:
    if clusters <= ENUMERATE_UP_TO:
        return f"bootstrap over {clusters} clusters, all {clusters**clusters} resamples"
    return f"bootstrap over {clusters} clusters, {resamples} resamples"
