"""Two methods on the same episodes, and many such comparisons at once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from faultset.evaluators.statistics.clusters import MINIMUM_FOR_TESTS, clustered_mean, group
from faultset.evaluators.statistics.estimates import Estimate

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


def sign_flip(differences: npt.ArrayLike, keys: Sequence[Hashable], seed: int = 0) -> PairedTest:
    """Two-sided permutation test that flips the sign of whole clusters.

    Below six clusters nothing can be significant, so nothing is claimed.
    """
    data = np.asarray(differences, dtype=float)
    sums = np.array([data[c].sum() for c in group(keys)])
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


@functools.lru_cache(maxsize=4)
def _all_signs(count: int) -> npt.NDArray[np.int8]:
    return np.array(list(itertools.product((1, -1), repeat=count)), dtype=np.int8)


@functools.lru_cache(maxsize=4)
def _drawn_signs(count: int, seed: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).choice((1, -1), size=(9999, count))


def paired_difference(
    first: Sequence[float], second: Sequence[float], keys: Sequence[Hashable], seed: int = 0
) -> PairedDifference:
    """Compare two methods' scores on the same episodes, clustered."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    better = sum(a == 1.0 and b == 0.0 for a, b in zip(first, second, strict=True))
    worse = sum(a == 0.0 and b == 1.0 for a, b in zip(first, second, strict=True))
    if any(value not in (0.0, 1.0) for value in (*first, *second)):
        mcnemar = PairedTest(p=math.nan, reason="ties or seeds make fractions")
    elif len(set(keys)) < len(keys):
        mcnemar = PairedTest(p=math.nan, reason="problems are repeated; the clustered test counts")
    else:
        mcnemar = mcnemar_exact(better, worse)
    return PairedDifference(
        difference=clustered_mean(differences, keys, seed, shares=False),
        test=sign_flip(differences, keys, seed),
        mcnemar=mcnemar,
        only_first=better,
        only_second=worse,
    )


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
