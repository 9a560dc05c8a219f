"""Exact or score intervals for rates: Wilson for shares of independent episodes, Poisson for alarms per hour."""

from __future__ import annotations

import math

from faultset.evaluators.statistics.estimates import Estimate, unknown

_Z95 = 1.959963984540054


def wilson_interval(k: float, n: int, z: float = _Z95) -> tuple[float, float]:
    """Wilson score interval of k successes in n trials; still sensible at 0 and n, where p ± 2 SE is not."""
    p = k / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def poisson_interval(count: float, hours: float, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a rate per hour from a count of independent events."""
    from scipy.special import chdtri

    tail = (1 - level) / 2
    # chdtri(v, p) is the chi-square value whose upper tail is p
    low = float(chdtri(2 * count, 1 - tail)) / 2 / hours if count else 0.0
    return low, float(chdtri(2 * count + 2, tail)) / 2 / hours


def hourly_rate(count: float, hours: float, episodes: int = 0) -> Estimate:
    """Events per hour with the exact Poisson interval; zero events still leave an upper end near 3.7 / hours.

    A count that is a mean over seeds may have a fraction.
    """
    if hours <= 0:
        return unknown("no observed time without a fault")
    low, high = poisson_interval(count, hours)
    return Estimate(value=count / hours, low=low, high=high, n=episodes, k=count, method="exact Poisson")
