"""Limits that healthy values stay below with a stated probability."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri, stdtrit

from faultset.baselines.stats.scaling import Matrix

LEVEL = 0.0027
"""Probability that a normal value lies beyond three standard deviations."""


def bonferroni_sigmas(series: int, *, level: float = LEVEL, samples: int | None = None) -> float:
    """Sigmas beyond which one of `series` independent normal values lies with probability `level`.

    With a number of samples, it allows for mean and spread being estimated from them: Student's prediction interval.

    >>> round(bonferroni_sigmas(1), 2), round(bonferroni_sigmas(100), 2)
    (3.0, 4.2)
    >>> round(bonferroni_sigmas(100, samples=40), 2)
    4.81
    """
    tail = level / (2 * max(series, 1))
    if samples is None or samples < 2:
        return -float(ndtri(tail))
    return -float(stdtrit(samples - 1, tail) * np.sqrt(1 + 1 / samples))


def reference_limit(scores: Matrix, *, least: float = 0.0, level: float = LEVEL) -> float:
    """Limit that a healthy sample passes with probability `level`, and none of the held-out scores does.

    Student's prediction interval from as many scores as there are.

    >>> round(reference_limit(np.array([1.0, 2.0, 3.0] * 16)), 2)
    4.64
    """
    if len(scores) < 2:
        return max(least, float(scores.max(initial=0.0)))
    sigmas = bonferroni_sigmas(1, level=level, samples=len(scores))
    return max(least, float(scores.max()), float(scores.mean() + sigmas * scores.std(ddof=1)))
