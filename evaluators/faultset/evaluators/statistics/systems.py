"""From a few systems to the next one: what a method would get on a system that was not evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from faultset.evaluators.statistics.estimates import Estimate, unknown

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
