"""Means over episodes that repeat the same problem: standard error and bootstrap over whole clusters.

Ten runs of one fault on one service are nearly one observation. A cluster is (application, fault, target);
clusters are resampled whole. Few clusters are enumerated instead of sampled.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Sequence

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


def draws(clusters: int, seed: int, resamples: int = RESAMPLES) -> npt.NDArray[np.intp]:
    """Cluster numbers of every resample, one resample per row; all of them when there are few clusters."""
    if clusters <= ENUMERATE_UP_TO:
        return np.array(list(itertools.product(range(clusters), repeat=clusters)), dtype=np.intp)
    return np.random.default_rng(seed).integers(0, clusters, size=(resamples, clusters))


@functools.lru_cache(maxsize=8)
def times_drawn(clusters: int, seed: int) -> npt.NDArray[np.float64]:
    """[resamples, clusters] how often each cluster is in each resample; the same for every number of a table."""
    return _times_drawn(draws(clusters, seed), clusters).astype(float)


def resampled_means(values: npt.ArrayLike, keys: Sequence[Hashable], seed: int = 0) -> npt.NDArray[np.float64]:
    """Mean over all episodes of every resample of whole clusters."""
    data = np.asarray(values, dtype=float)
    clusters = group(keys)
    sums = np.array([data[c].sum() for c in clusters])
    sizes = np.array([len(c) for c in clusters])
    times = times_drawn(len(clusters), seed)
    return (times @ sums) / (times @ sizes)


def clustered_mean(
    values: Sequence[float], keys: Sequence[Hashable], seed: int = 0, *, shares: bool = True
) -> Estimate:
    """Mean over episodes with a percentile interval from the clustered bootstrap.

    NaN values are unscored: left out and counted, as `n` tells. Where every episode has the same value, resampling
    cannot see any spread. For shares that are all 0 or all 1 the interval is then Wilson's with clusters as the number
    of trials; elsewhere there is none.

    Parameters
    ----------
    shares
        The values lie between 0 and 1, which are the worst and the best; not so for seconds, or for differences.
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
        if not shares or mean not in (0.0, 1.0):
            return Estimate(value=mean, n=len(data), k=total, reason="no spread between clusters")
        low, high = wilson_interval(mean * count, count)
        return Estimate(value=mean, low=low, high=high, n=len(data), k=total, method="Wilson over clusters")
    low, high = np.quantile(resampled_means(data, names, seed), [0.025, 0.975])
    return Estimate(value=mean, low=float(low), high=float(high), n=len(data), k=total, method=_method(count))


def clustered_median(values: Sequence[float], keys: Sequence[Hashable], seed: int = 0) -> Estimate:
    """Median in which a miss is +inf (the upper middle value) with a percentile interval over clusters."""
    if not values:
        return unknown("no scored episode")
    data = np.asarray(values, dtype=float)
    order = np.argsort(data, kind="stable")
    middle = float(data[order][len(data) // 2])
    clusters = group(keys)
    if len(clusters) < 2:
        return Estimate(value=middle, n=len(data), reason="one cluster: no interval")
    member_of = np.empty(len(data), dtype=np.intp)
    for number, members in enumerate(clusters):
        member_of[members] = number
    times = times_drawn(len(clusters), seed)[:, member_of[order]]
    upto = times.cumsum(axis=1)
    position = (upto > upto[:, -1:] // 2).argmax(axis=1)
    medians = np.sort(data[order][position])
    low, high = _ends(medians)
    return Estimate(value=middle, low=low, high=high, n=len(data), method=_method(len(clusters)))


Sums = npt.NDArray[np.float64]


def clustered_ratio(
    counts: npt.ArrayLike,
    keys: Sequence[Hashable],
    strata: Sequence[Hashable],
    statistic: Callable[[Sums], Sums],
    seed: int = 0,
) -> Estimate:
    """A statistic of summed counts, such as balanced accuracy, with an interval over clusters within strata.

    Parameters
    ----------
    counts
        [episodes, columns] what each episode adds to the sums.
    strata
        Clusters are resampled within each stratum, so that the number of fault and no-fault clusters is kept.
    statistic
        From sums [..., columns] to values [...]; NaN where undefined.
    """
    data = np.asarray(counts, dtype=float)
    if len(data) == 0:
        return unknown("no scored episode")
    value = float(statistic(data.sum(axis=0)))
    if math.isnan(value):
        return unknown("undefined on these episodes", len(data))
    total = np.zeros((RESAMPLES, data.shape[1]))
    spread = False
    for number, stratum in enumerate(dict.fromkeys(strata)):
        inside = np.array([s == stratum for s in strata])
        clusters = group([key for key, take in zip(keys, inside, strict=True) if take])
        sums = np.array([data[inside][c].sum(axis=0) for c in clusters])
        total += _stratum_times(len(clusters), seed, number) @ sums
        spread |= len(clusters) > 1
    results = statistic(total)
    results = np.sort(results[~np.isnan(results)])
    if not spread or len(results) == 0:
        return Estimate(value=value, n=len(data), reason="one cluster: no interval")
    if results[0] == results[-1]:
        return Estimate(value=value, n=len(data), reason="no spread between clusters")
    low, high = _ends(results)
    method = f"bootstrap over {len(set(keys))} clusters within strata, {RESAMPLES} resamples"
    return Estimate(value=value, low=low, high=high, n=len(data), method=method)


@functools.lru_cache(maxsize=8)
def _stratum_times(clusters: int, seed: int, stratum: int) -> npt.NDArray[np.float64]:
    picked = np.random.default_rng([seed, stratum]).integers(0, clusters, (RESAMPLES, clusters))
    return _times_drawn(picked, clusters).astype(float)


def _times_drawn(picked: npt.NDArray[np.intp], clusters: int) -> npt.NDArray[np.intp]:
    rows = np.arange(len(picked))[:, None] * clusters
    return np.bincount((rows + picked).ravel(), minlength=len(picked) * clusters).reshape(len(picked), clusters)


def _ends(ordered: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Outer 2.5 % of sorted values, without averaging neighbours: one of them may be infinite."""
    last = len(ordered) - 1
    return float(ordered[math.floor(0.025 * last)]), float(ordered[math.ceil(0.975 * last)])


def _method(clusters: int) -> str:
    if clusters <= ENUMERATE_UP_TO:
        return f"bootstrap over {clusters} clusters, all {clusters**clusters} resamples"
    return f"bootstrap over {clusters} clusters, {RESAMPLES} resamples"
