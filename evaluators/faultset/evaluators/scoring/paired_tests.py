"""Paired comparisons, balanced accuracy and Matthews correlation with intervals, and prediction intervals."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from faultset.evaluators.scoring.intervals import (
    LEVEL,
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

_MAX_ENUMERATED_CLUSTERS = 14


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """Result of a paired test, or the reason why p is missing."""

    p: float
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Mean difference of two methods on the same episodes, with its tests."""

    difference: Estimate
    """Has no interval if all episodes have the same difference."""
    test: PairedTest
    """Sign-flip test over clusters."""
    mcnemar: PairedTest = field(default_factory=lambda: PairedTest(p=math.nan, reason="not computed"))
    """Exact test on discordant episodes; only if every cluster is one episode and every value is 0 or 1."""
    only_first: int = 0
    """Number of episodes that only the first method gets right."""
    only_second: int = 0


def mcnemar_exact(only_first: int, only_second: int) -> PairedTest:
    """Run the exact McNemar test on the episodes that only one of two methods gets right.

    Episodes must be independent. With fewer than six discordant episodes p is above 0.05.
    """
    n = only_first + only_second
    if n == 0:
        return PairedTest(p=math.nan, reason="the two methods never differ")
    smaller = min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(smaller + 1)) / 2**n
    return PairedTest(p=min(1.0, 2 * tail))


def sign_flip(
    differences: npt.ArrayLike, keys: Sequence[Hashable], seed: int = 0, *, strata: Sequence[Hashable] | None = None
) -> PairedTest:
    """Run the two-sided permutation test that flips the signs of whole clusters.

    With fewer than six clusters p is missing, because it could not fall below 0.05. With strata the statistic is the
    mean over strata of their mean differences, such as a difference of balanced accuracies.
    """
    data = np.asarray(differences, dtype=float)
    sums = cluster_sums(data * _compute_equal_weights(strata, len(data)), keys)
    if len(sums) < MINIMUM_FOR_TESTS:
        return PairedTest(p=math.nan, reason=f"{len(sums)} clusters; a test needs {MINIMUM_FOR_TESTS}")
    if not sums.any():
        return PairedTest(p=math.nan, reason="the two methods never differ")
    if len(sums) <= _MAX_ENUMERATED_CLUSTERS:
        signs, extra = _list_all_signs(len(sums)), 0
    else:
        signs, extra = _draw_signs(len(sums), seed), 1
    as_extreme = int((np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12).sum())
    return PairedTest(p=(as_extreme + extra) / (len(signs) + extra))


def clusters_needed(comparisons: int) -> int:
    """Return the number of clusters at which the smallest Holm-corrected p can first reach 0.05."""
    return max(MINIMUM_FOR_TESTS, math.ceil(math.log2(2 * max(1, comparisons) / 0.05)))


def _compute_equal_weights(strata: Sequence[Hashable] | None, count: int) -> npt.NDArray[np.float64]:
    """Return weights with mean 1 that give each stratum the same total."""
    if strata is None:
        return np.ones(count)
    sizes = Counter(strata)
    return np.array([count / (len(sizes) * sizes[stratum]) for stratum in strata])


@functools.lru_cache(maxsize=4)
def _list_all_signs(count: int) -> npt.NDArray[np.int8]:
    return np.array(list(itertools.product((1, -1), repeat=count)), dtype=np.int8)


@functools.lru_cache(maxsize=4)
def _draw_signs(count: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).choice((1, -1), size=(9999, count))


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    keys: Sequence[Hashable],
    seed: int = 0,
    *,
    strata: Sequence[Hashable] | None = None,
) -> PairedDifference:
    """Compare the scores of two methods on the same episodes.

    If all scores are shares, the interval of their difference is limited to [-1, 1].

    `strata`: kinds of episodes that get equal weight, as in balanced accuracy.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    better = sum(a == 1.0 and b == 0.0 for a, b in zip(first, second, strict=True))
    worse = sum(a == 0.0 and b == 1.0 for a, b in zip(first, second, strict=True))
    if any(value not in (0.0, 1.0) for value in (*first, *second)):
        mcnemar = PairedTest(p=math.nan, reason="some scores are fractions, because of ties or several seeds")
    elif len(set(keys)) < len(keys):
        mcnemar = PairedTest(p=math.nan, reason="some clusters have several episodes; use the test over clusters")
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
    """Return the mean over strata of their mean differences, with Student's interval over clusters."""
    if not differences:
        return unknown("no scored episode")
    kinds = [0] * len(differences) if strata is None else list(strata)
    halves: list[tuple[float, Spread]] = []
    for kind in dict.fromkeys(kinds):
        indices = [i for i, other in enumerate(kinds) if other == kind]
        halves.append(mean_and_spread([differences[i] for i in indices], [keys[i] for i in indices]))
    mean = sum(value for value, _ in halves) / len(halves)
    estimate = Estimate(value=mean, n=len(differences), k=float(sum(differences)))
    count = len(set(keys))
    if count < 2:
        return estimate.without_interval("one cluster: no interval")
    spread = functools.reduce(pooled, (spread for _, spread in halves))
    if spread.variance <= 0:
        return estimate.without_interval("no spread between clusters")
    mean_spread = Spread(variance=spread.variance / len(halves) ** 2, clusters=spread.clusters, df=spread.df)
    return estimate.with_interval(*mean_interval(mean, mean_spread), method=f"Student's t over {count} clusters")


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's step-down method; NaN stays NaN and does not count as a comparison.

    Examples
    --------
    >>> [round(p, 4) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    ordered = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted = [math.nan] * len(p_values)
    highest = 0.0
    for step, (p, i) in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ordered) - step) * p))
        adjusted[i] = highest
    return adjusted


def balanced_accuracy(
    faulty: Sequence[float], faulty_keys: Sequence[Hashable], healthy: Sequence[float], healthy_keys: Sequence[Hashable]
) -> Estimate:
    """Return the mean of the accuracies on fault and on no-fault episodes; there must be some of each."""
    return _combine(lambda a, b: (a + b) / 2, faulty, faulty_keys, healthy, healthy_keys)


def matthews_correlation(
    faulty: Sequence[float], faulty_keys: Sequence[Hashable], healthy: Sequence[float], healthy_keys: Sequence[Hashable]
) -> Estimate:
    """Return the Matthews correlation of fault and no-fault episodes; 0 if all answers are the same."""
    share = len(faulty) / (len(faulty) + len(healthy))

    def correlation(recall: float, specificity: float) -> float:
        positive_share = share * recall + (1 - share) * (1 - specificity)
        if not 0 < positive_share < 1:
            return 0.0
        return (recall + specificity - 1) * math.sqrt(share * (1 - share) / (positive_share * (1 - positive_share)))

    return _combine(correlation, faulty, faulty_keys, healthy, healthy_keys)


def _combine(
    statistic: Callable[[float, float], float],
    first: Sequence[float],
    first_keys: Sequence[Hashable],
    second: Sequence[float],
    second_keys: Sequence[Hashable],
) -> Estimate:
    halves = [mean_and_spread(first, first_keys), mean_and_spread(second, second_keys)]
    (a, spread_a), (b, spread_b) = halves
    value = statistic(a, b)
    estimate = Estimate(value=value, n=len(first) + len(second))
    counts = len(set(first_keys)), len(set(second_keys))
    if min(counts) < 2:
        return estimate.without_interval("the fault or the no-fault episodes form only one cluster")
    df = pooled(spread_a, spread_b).df
    low_a, high_a = share_interval(a, Spread(variance=spread_a.variance, clusters=spread_a.clusters, df=df))
    low_b, high_b = share_interval(b, Spread(variance=spread_b.variance, clusters=spread_b.clusters, df=df))
    low = value - float(np.hypot(value - statistic(low_a, b), value - statistic(a, low_b)))
    high = value + float(np.hypot(statistic(high_a, b) - value, statistic(a, high_b) - value))
    method = f"Wilson over {counts[0]} + {counts[1]} clusters, combined"
    return estimate.with_interval(max(low, statistic(0, 0)), min(high, statistic(1, 1)), method=method)


MIN_SYSTEMS = 3


def prediction_interval(values: Sequence[float]) -> Estimate:
    """Return the mean over systems with Student's prediction interval for one more system.

    Systems chosen by hand are not a random sample, so the true uncertainty is at least this large. The interval of a
    share is not limited to [0, 1]: a bound outside shows that nothing can be predicted.
    """
    from scipy.special import stdtrit

    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return unknown("no system was scored")
    count, mean = len(finite), float(np.mean(finite))
    if count < MIN_SYSTEMS:
        return Estimate(value=mean, n=count, reason=f"{count} systems; a prediction needs {MIN_SYSTEMS} or more")
    half = stdtrit(count - 1, (1 + LEVEL) / 2) * np.std(finite, ddof=1) * math.sqrt(1 + 1 / count)
    return Estimate(value=mean, n=count).with_interval(
        mean - half, mean + half, method=f"prediction interval over {count} systems"
    )
