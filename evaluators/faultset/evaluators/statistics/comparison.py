"""Compare two methods on the same episodes, combine two halves of episodes, and predict one more system."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from faultset.evaluators.statistics.intervals import (
    MINIMUM_FOR_TESTS,
    Estimate,
    Spread,
    cluster_sums,
    mean_and_spread,
    mean_interval,
    pooled,
    share_interval,
    unknown,
)

_ENUMERATE_SIGNS_UP_TO = 14


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """Result of a paired test; `reason` says why p is missing."""

    p: float
    mid_p: float = math.nan
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Mean difference of two methods on the same episodes, and how surprising it would be without any."""

    difference: Estimate
    """Without an interval where all episodes have the same: it would be invented."""
    test: PairedTest
    """Flips the signs of whole clusters."""
    mcnemar: PairedTest = field(default_factory=lambda: PairedTest(p=math.nan, reason="not computed"))
    """Exact test on discordant episodes; only where every problem occurs once and every value is right or wrong."""
    only_first: int = 0
    """Episodes that only the first method gets right."""
    only_second: int = 0


def mcnemar_exact(only_first: int, only_second: int) -> PairedTest:
    """Exact McNemar test on the episodes where just one of two methods is right.

    Assumes independent episodes. With fewer than six discordant episodes p cannot get below 0.05.
    """
    n = only_first + only_second
    if n == 0:
        return PairedTest(p=math.nan, reason="the two never differ")
    smaller = min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(smaller + 1)) / 2**n
    p = min(1.0, 2 * tail)
    return PairedTest(p=p, mid_p=p - math.comb(n, smaller) / 2**n)


def sign_flip(
    differences: npt.ArrayLike, keys: Sequence[Hashable], seed: int = 0, *, strata: Sequence[Hashable] | None = None
) -> PairedTest:
    """Two-sided permutation test that flips the sign of whole clusters.

    Below six clusters nothing can be significant, so nothing is claimed. With strata, what is tested is the mean over
    strata of the mean difference in each, such as a difference of balanced accuracies.
    """
    data = np.asarray(differences, dtype=float)
    sums = cluster_sums(data * _weights(strata, len(data)), keys)
    if len(sums) < MINIMUM_FOR_TESTS:
        return PairedTest(p=math.nan, reason=f"{len(sums)} clusters; a test needs {MINIMUM_FOR_TESTS}")
    if not sums.any():
        return PairedTest(p=math.nan, reason="the two never differ")
    if len(sums) <= _ENUMERATE_SIGNS_UP_TO:
        signs, extra = _all_signs(len(sums)), 0
    else:
        signs, extra = _drawn_signs(len(sums), seed), 1
    as_extreme = int((np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12).sum())
    return PairedTest(p=(as_extreme + extra) / (len(signs) + extra))


def clusters_needed(comparisons: int, level: float = 0.05) -> int:
    """Return how many clusters there must be for the smallest of so many corrected p to reach the level."""
    return max(MINIMUM_FOR_TESTS, math.ceil(math.log2(2 * max(1, comparisons) / level)))


def _weights(strata: Sequence[Hashable] | None, count: int) -> npt.NDArray[np.float64]:
    """[episodes] weights, one on average, that give each stratum the same total."""
    if strata is None:
        return np.ones(count)
    sizes = Counter(strata)
    return np.array([count / (len(sizes) * sizes[stratum]) for stratum in strata])


@functools.lru_cache(maxsize=4)
def _all_signs(count: int) -> npt.NDArray[np.int8]:
    return np.array(list(itertools.product((1, -1), repeat=count)), dtype=np.int8)


@functools.lru_cache(maxsize=4)
def _drawn_signs(count: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).choice((1, -1), size=(9999, count))


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    keys: Sequence[Hashable],
    seed: int = 0,
    *,
    strata: Sequence[Hashable] | None = None,
) -> PairedDifference:
    """Compare two methods' scores on the same episodes, clustered.

    The interval of a difference of shares ends at -1 and 1.

    Parameters
    ----------
    strata
        Two kinds of episodes that count the same whatever their numbers, as in balanced accuracy.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    better = sum(a == 1.0 and b == 0.0 for a, b in zip(first, second, strict=True))
    worse = sum(a == 0.0 and b == 1.0 for a, b in zip(first, second, strict=True))
    if any(value not in (0.0, 1.0) for value in (*first, *second)):
        mcnemar = PairedTest(p=math.nan, reason="ties or seeds make fractions")
    elif len(set(keys)) < len(keys):
        mcnemar = PairedTest(p=math.nan, reason="problems are repeated; the clustered test counts")
    else:
        mcnemar = mcnemar_exact(better, worse)
    difference = mean_difference(differences, keys, strata)
    if difference.interval_known and all(0 <= value <= 1 for value in (*first, *second)):
        low, high = max(-1.0, difference.low), min(1.0, difference.high)
        difference = difference.with_interval(low, high, method=difference.method)
    return PairedDifference(
        difference=difference,
        test=sign_flip(differences, keys, seed, strata=strata),
        mcnemar=mcnemar,
        only_first=better,
        only_second=worse,
    )


def mean_difference(
    differences: Sequence[float], keys: Sequence[Hashable], strata: Sequence[Hashable] | None = None
) -> Estimate:
    """Mean over the strata of the mean difference in each, with Student's interval over clusters."""
    if not differences:
        return unknown("no scored episode")
    kinds = [0] * len(differences) if strata is None else list(strata)
    parts: list[tuple[float, Spread]] = []
    for kind in dict.fromkeys(kinds):
        inside = [i for i, one in enumerate(kinds) if one == kind]
        parts.append(mean_and_spread([differences[i] for i in inside], [keys[i] for i in inside]))
    mean = sum(part for part, _ in parts) / len(parts)
    found = Estimate(value=mean, n=len(differences), k=float(sum(differences)))
    count = len(set(keys))
    if count < 2:
        return found.without_interval("one cluster: no interval")
    spread = functools.reduce(pooled, (spread for _, spread in parts))
    if spread.variance <= 0:
        return found.without_interval("no spread between clusters")
    whole = Spread(variance=spread.variance / len(parts) ** 2, clusters=spread.clusters, df=spread.df)
    return found.with_interval(*mean_interval(mean, whole), method=f"Student's t over {count} clusters")


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction; NaN stays NaN and is not counted as a comparison.

    Examples
    --------
    >>> [round(p, 4) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted = [math.nan] * len(p_values)
    highest = 0.0
    for done, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - done) * p))
        adjusted[i] = highest
    return adjusted


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


FEWEST_SYSTEMS = 3


def prediction_interval(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Mean over systems with the interval in which one more system's value is expected (Student's t).

    Systems are taken as a sample of systems, which a handful chosen by hand is not: there is at least this much doubt.
    Values of a share are not cut to [0, 1], because an end outside tells that nothing can be promised.
    """
    from scipy.special import stdtrit

    known = [value for value in values if math.isfinite(value)]
    if not known:
        return unknown("no system was scored")
    mean = float(np.mean(known))
    if len(known) < FEWEST_SYSTEMS:
        return Estimate(
            value=mean, n=len(known), reason=f"{len(known)} systems; a prediction needs {FEWEST_SYSTEMS} or more"
        )
    half = stdtrit(len(known) - 1, (1 + level) / 2) * np.std(known, ddof=1) * math.sqrt(1 + 1 / len(known))
    return replace(
        Estimate(value=mean, n=len(known), method=f"prediction interval over {len(known)} systems"),
        low=float(mean - half),
        high=float(mean + half),
    )
