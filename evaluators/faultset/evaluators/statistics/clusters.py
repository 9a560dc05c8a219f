"""Estimates over episodes that repeat the same problem, with intervals over clusters.

Ten runs of one fault on one service are nearly one observation. A cluster is (application, fault, target); what
clusters differ by is the uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from faultset.evaluators.statistics.estimates import Estimate, unknown
from faultset.evaluators.statistics.intervals import (
    Spread,
    mean_interval,
    pooled,
    share_interval,
    spread_over_clusters,
)

MINIMUM_FOR_TESTS = 6
"""With C clusters the smallest two-sided p of a sign-flip test is 2 / 2**C, so fewer can never reach 0.05."""
SHARE = (0.0, 1.0)
_ONE_CLUSTER = "one cluster: no interval"
Numbers = npt.NDArray[np.float64]


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
