"""Choices that differ between episodes of one application and appear in no object that a method can read."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

SHORTEST_START_S, LONGEST_START_S = 2.0, 90.0
"""Range of the delays before the pods of a rollout become ready."""
_LOG_DELAY = NormalDist(mu=2.2, sigma=1.0)
"""Logarithm of a delay in seconds: half of the delays are below 9 s, one in fifty is above 70 s."""


@dataclass(frozen=True, kw_only=True)
class Variation:
    """The choices of one episode that affect its application.

    Attributes
    ----------
    seed
        Decides which image tag has which defect, and how long each rollout takes.
    longest_start_s
        Upper bound of the readiness delays, for views that are too short for longer ones; below 2 s there is no delay.
    """

    seed: int = 0
    longest_start_s: float = LONGEST_START_S

    def readiness_delay_s(self, workload: str, generation: int) -> int:
        """Return how long the next rollout of a workload waits before it probes whether new pods are ready.

        Healthy and faulty rollouts draw from the same distribution: a truncated log-normal one.
        """
        if self.longest_start_s < SHORTEST_START_S:
            return 0
        position = random.Random(f"{self.seed}/{workload}/{generation}").random()
        lowest, highest = (_LOG_DELAY.cdf(math.log(delay_s)) for delay_s in (SHORTEST_START_S, self.longest_start_s))
        return round(math.exp(_LOG_DELAY.inv_cdf(lowest + position * (highest - lowest))))
