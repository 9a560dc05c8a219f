"""What happens in a synthetic episode: its services, its fault and who feels it when."""

from __future__ import annotations

import numpy as np

from faultset.core.times import SECOND_NS

SERVICES = ("frontend", "search", "geo", "rate", "profile", "recommendation")
CALLS = (
    ("frontend", "search"),
    ("frontend", "profile"),
    ("frontend", "recommendation"),
    ("search", "geo"),
    ("search", "rate"),
)
FAULTS = ("cpu-hog", "slow-disk")
START_NS = 1_760_000_000_000_000_000


class Scenario:
    """What happens in one synthetic episode.

    Parameters
    ----------
    number
        Number of the episode in its dataset; odd ones have a fault.
    rng
        Decides everything else.
    baseline_s, fault_s
        Length of the two halves of the view in seconds.
    """

    def __init__(self, number: int, rng: np.random.Generator, baseline_s: int, fault_s: int) -> None:
        self.rng = rng
        self.id = "e" + "".join(f"{value:02x}" for value in rng.integers(0, 256, 5))
        self.fault = FAULTS[(number // 2) % len(FAULTS)] if number % 2 else None
        self.target = SERVICES[1 + (number // 2) % (len(SERVICES) - 1)]
        self.length_s = baseline_s + fault_s
        self.start = START_NS + int(rng.integers(0, 86_400)) * SECOND_NS
        self.end = self.start + self.length_s * SECOND_NS
        self.reference_end = self.start + int(0.8 * baseline_s * SECOND_NS)
        onset = baseline_s * rng.uniform(0.8, 1.2)
        self.onset = self.start + int(onset * SECOND_NS)
        self.pods = {name: f"{name}-{self._word(9)}-{self._word(5)}" for name in SERVICES}

    @property
    def is_faulty(self) -> bool:
        """Whether the episode has a fault."""
        return self.fault is not None

    def _word(self, letters: int) -> str:
        return "".join(self.rng.choice(list("bcdfghjklmnpqrstvwxz2456789"), letters))

    def strength(self, service: str, times: np.ndarray) -> np.ndarray:
        """Return how much of the fault a service feels at each time: 1 at the target, less at those that call it."""
        if self.fault is None:
            return np.zeros(len(times))
        felt = {self.target: 1.0}
        for _ in SERVICES:
            felt |= {
                caller: max(felt.get(caller, 0.0), 0.4 * felt[callee]) for caller, callee in CALLS if callee in felt
            }
        return np.where(times >= self.onset, felt.get(service, 0.0), 0.0)
