"""Statistics of two independent halves, episodes with and without a fault: balanced accuracy, Matthews correlation.

Each half has its own interval, and the two are put together by the method of variance estimates recovery. So a half
in which all clusters agree still has a width, and equal data give equal intervals for both statistics.

References
----------
Newcombe, Interval estimation for the difference between independent proportions, 1998; Zou and Donner, Construction of
confidence limits about effect measures, 2008.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from faultset.evaluators.statistics.clusters import mean_and_spread
from faultset.evaluators.statistics.estimates import Estimate
from faultset.evaluators.statistics.intervals import Spread, pooled, share_interval


def balanced_accuracy(
    faulty: Sequence[float], faulty_keys: Sequence[Hashable], healthy: Sequence[float], healthy_keys: Sequence[Hashable]
) -> Estimate:
    """Mean of the shares of right answers in the two halves, which must not be empty."""
    return _combined(lambda a, b: (a + b) / 2, faulty, faulty_keys, healthy, healthy_keys)


def matthews_correlation(
    faulty: Sequence[float], faulty_keys: Sequence[Hashable], healthy: Sequence[float], healthy_keys: Sequence[Hashable]
) -> Estimate:
    """Matthews correlation of yes and no, given how many episodes of each half there are; 0 where all answers agree."""
    share = len(faulty) / (len(faulty) + len(healthy))

    def correlation(found: float, quiet: float) -> float:
        yes = share * found + (1 - share) * (1 - quiet)
        if not 0 < yes < 1:
            return 0.0
        return (found + quiet - 1) * math.sqrt(share * (1 - share) / (yes * (1 - yes)))

    return _combined(correlation, faulty, faulty_keys, healthy, healthy_keys)


def _combined(
    statistic: Callable[[float, float], float],
    first: Sequence[float],
    first_keys: Sequence[Hashable],
    second: Sequence[float],
    second_keys: Sequence[Hashable],
) -> Estimate:
    halves = [mean_and_spread(first, first_keys), mean_and_spread(second, second_keys)]
    (a, spread_a), (b, spread_b) = halves
    value = statistic(a, b)
    found = Estimate(value=value, n=len(first) + len(second))
    counts = len(set(first_keys)), len(set(second_keys))
    if min(counts) < 2:
        return found.without_interval("one cluster of a half: no interval")
    df = pooled(spread_a, spread_b).df
    low_a, high_a = share_interval(a, Spread(variance=spread_a.variance, clusters=spread_a.clusters, df=df))
    low_b, high_b = share_interval(b, Spread(variance=spread_b.variance, clusters=spread_b.clusters, df=df))
    low = value - float(np.hypot(value - statistic(low_a, b), value - statistic(a, low_b)))
    high = value + float(np.hypot(statistic(high_a, b) - value, statistic(a, high_b) - value))
    method = f"Wilson over {counts[0]} + {counts[1]} clusters, combined"
    return found.with_interval(max(low, statistic(0, 0)), min(high, statistic(1, 1)), method=method)
