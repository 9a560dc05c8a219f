"""Tail probabilities of the verdict's tests.

`scipy.stats` has the same functions, but its import takes longer than the verdict of an episode, and no other part of
the collector needs its 110 MB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import lgamma


def compute_normal_sf(z: float) -> float:
    """Return the probability that a standard normal variable exceeds `z`."""
    return math.erfc(z / math.sqrt(2)) / 2


def compute_binomial_cdf(successes: int, trials: int, share: float) -> float:
    """Return the probability of at most `successes` in `trials`, each with a probability in (0, 1).

    >>> round(compute_binomial_cdf(1, 2, 0.9), 4)
    0.19
    """
    if successes >= trials:
        return 1.0
    return _sum_binomial(_list_log_choices(successes, trials), trials, share)


def _list_log_choices(successes: int, trials: int) -> list[float]:
    """Return the logarithms of the ways to draw 0, 1, ... `successes` of the trials."""
    return [_log_choose(trials, count) for count in range(successes + 1)]


def _sum_binomial(log_choices: Sequence[float], trials: int, share: float) -> float:
    log_share, log_rest = math.log(share), math.log1p(-share)
    terms = (
        math.exp(log_choice + count * log_share + (trials - count) * log_rest)
        for count, log_choice in enumerate(log_choices)
    )
    return min(1.0, math.fsum(terms))


def compute_binomial_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson, Biometrika 1934).

    >>> [round(bound, 4) for bound in compute_binomial_interval(0, 10)]
    [0.0, 0.3085]
    """
    upper = _find_share(successes, trials, 0.025) if successes < trials else 1.0
    lower = _find_share(successes - 1, trials, 0.975) if successes else 0.0
    return lower, upper


def _find_share(successes: int, trials: int, probability: float) -> float:
    """Return the success share at which at most `successes` in `trials` occur with a given probability."""
    log_choices = _list_log_choices(successes, trials)
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        # the probability of at most `successes` falls as the share grows
        low, high = (middle, high) if _sum_binomial(log_choices, trials, middle) > probability else (low, middle)
    return low


def compute_fisher_p_value(table: list[list[int]]) -> float:
    """Return the one-sided p-value of Fisher's exact test that the second row of (errors, others) has more errors.

    >>> round(compute_fisher_p_value([[0, 2], [2, 0]]), 4)
    0.1667
    """
    (a, b), (c, d) = table
    errors, others, drawn = a + c, b + d, c + d
    if c <= max(0, drawn - others):
        return 1.0
    log_all = _log_choose(errors + others, drawn)
    terms = (
        math.exp(_log_choose(errors, count) + _log_choose(others, drawn - count) - log_all)
        for count in range(c, min(errors, drawn) + 1)
    )
    return min(1.0, math.fsum(terms))


def _log_choose(total: int, chosen: int) -> float:
    return lgamma(total + 1) - lgamma(chosen + 1) - lgamma(total - chosen + 1)
