"""What is recorded of an episode while it runs: instants, parameters, evidence, durations."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd

from faultset.collector.faults.registry import FaultSpec
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.impairments import Course
from faultset.collector.verdicts.latent import rolled_out_services
from faultset.core.times import SECOND_NS


class EpisodeClock(Protocol):
    """What an episode asks of a clock; the module `time` is one."""

    def time_ns(self) -> int:
        """Return UTC nanoseconds since 1970."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that is never set."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Return after so many seconds."""
        ...


SYSTEM_CLOCK: EpisodeClock = time
"""The clock of this machine."""


@dataclass(frozen=True, kw_only=True)
class ViewBounds:
    """Bounds of an episode's view in UTC nanoseconds, half-open; the reference is its healthy begin."""

    start_ns: int
    reference_end_ns: int
    end_ns: int


@dataclass(kw_only=True)
class FaultRecord:
    """What happened of one fault, and when.

    Attributes
    ----------
    target
        Service that it is applied to.
    rng
        What its injection draws from; every repetition draws the same.
    course
        How it acts over time; None for what it does by itself.
    before
        What its `observe` returned before the injection.
    parameters
        What the first injection returned.
    injections
        How often it was injected.
    """

    spec: FaultSpec
    target: str
    rng: np.random.Generator
    course: Course | None = None
    before: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    injections: int = 0
    inject_start_ns: int | None = None
    inject_done_ns: int | None = None
    effective_ns: int | None = None

    def is_due(self, now_ns: int, onset_ns: int) -> bool:
        """Tell whether it is to be injected, for the first time or again."""
        if not self.injections:
            return True
        repeat_s = self.spec.repeat_s
        return repeat_s is not None and now_ns >= onset_ns + self.injections * int(repeat_s * SECOND_NS)


@dataclass
class EpisodeRecord:
    """What happened in an episode, and when.

    All instants are UTC nanoseconds, None for what did not happen.

    Attributes
    ----------
    faults
        In the order in which they are injected; none in an episode without a fault.
    parallel
        How many episodes the campaign runs at a time.
    change
        What an episode without a fault has instead of one.
    durations_s
        Seconds spent on each command of the state machine.
    clock
        Gives the times of the evidence.
    store_servers
        Which server runs each store, for the context; empty where it is Redis.
    """

    plan: Plan
    faults: tuple[FaultRecord, ...] = ()
    parallel: int = 1
    inject_start_ns: int | None = None
    inject_done_ns: int | None = None
    recover_start_ns: int | None = None
    recover_done_ns: int | None = None
    healthy_again_ns: int | None = None
    change: dict[str, Any] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    durations_s: dict[str, float] = field(default_factory=dict)
    clock: EpisodeClock = SYSTEM_CLOCK
    store_servers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def effective_ns(self) -> int | None:
        """When the last of the faults was confirmed; None without one, and while one is not."""
        seen = [one.effective_ns for one in self.faults if one.effective_ns is not None]
        return max(seen) if seen and not self.unconfirmed else None

    @property
    def unconfirmed(self) -> tuple[FaultRecord, ...]:
        """The faults of which nothing has shown yet that they are in effect."""
        return tuple(one for one in self.faults if one.effective_ns is None)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the fault, of several by target, or of the change that is there instead of one."""
        if not self.faults:
            return self.change
        return (
            self.faults[0].parameters if len(self.faults) == 1 else {one.target: one.parameters for one in self.faults}
        )

    @property
    def rolled_out_services(self) -> frozenset[str]:
        """Services without a fault of which a healthy build was rolled out in the view."""
        return rolled_out_services(pd.DataFrame(self.evidence, columns=["check", "subject"]))

    def add_evidence(self, check: str, subject: str, passed: bool, detail: str) -> None:
        """Add a row of evidence with the present time."""
        row = {"check": check, "subject": subject, "time": self.clock.time_ns(), "passed": passed, "detail": detail}
        self.evidence.append(row)
