"""Records of a running episode: times, parameters, evidence, durations."""

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
    """Clock of an episode; the module `time` is one."""

    def time_ns(self) -> int:
        """Return UTC nanoseconds since 1970."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that is never adjusted."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait for a number of seconds."""
        ...


SYSTEM_CLOCK: EpisodeClock = time
"""The clock of this machine."""


@dataclass(frozen=True, kw_only=True)
class ViewBounds:
    """Bounds of an episode's view and of its healthy reference, in UTC nanoseconds, half-open."""

    start_ns: int
    reference_end_ns: int
    end_ns: int


@dataclass(kw_only=True)
class FaultRecord:
    """History of one fault."""

    spec: FaultSpec
    target: str
    """Service to which the fault is applied."""
    rng: np.random.Generator
    """Random generator of the injection; every repetition uses a copy."""
    course: Course | None = None
    """Intensity of the fault over time; None for its default."""
    before: Any = None
    """Result of the fault's `observe` before the injection."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Result of the first injection."""
    injections: int = 0
    """Number of injections so far."""
    inject_start_ns: int | None = None
    inject_done_ns: int | None = None
    effective_ns: int | None = None

    def is_due(self, now_ns: int, onset_ns: int) -> bool:
        """Return whether the fault must be injected now, for the first time or again."""
        if not self.injections:
            return True
        repeat_s = self.spec.repeat_s
        return repeat_s is not None and now_ns >= onset_ns + self.injections * int(repeat_s * SECOND_NS)


@dataclass
class EpisodeRecord:
    """History of an episode.

    All times are UTC nanoseconds; None for events that did not happen.
    """

    plan: Plan
    faults: tuple[FaultRecord, ...] = ()
    """Faults in the order of their injection; empty in an episode without a fault."""
    parallel: int = 1
    """Maximum number of concurrent episodes of the campaign."""
    inject_start_ns: int | None = None
    inject_done_ns: int | None = None
    recover_start_ns: int | None = None
    recover_done_ns: int | None = None
    healthy_again_ns: int | None = None
    change: dict[str, Any] = field(default_factory=dict)
    """Change that replaces the fault in an episode without one."""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    durations_s: dict[str, float] = field(default_factory=dict)
    """Seconds spent on each command of the state machine."""
    clock: EpisodeClock = SYSTEM_CLOCK
    """Clock of the evidence."""
    store_servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Server that runs each store, for the context; empty if Redis runs all."""

    @property
    def effective_ns(self) -> int | None:
        """When the last fault was confirmed; None before that, and without a fault."""
        times = [fault.effective_ns for fault in self.faults if fault.effective_ns is not None]
        return max(times) if times and not self.unconfirmed else None

    @property
    def unconfirmed(self) -> tuple[FaultRecord, ...]:
        return tuple(fault for fault in self.faults if fault.effective_ns is None)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the fault; by target if there are several; those of the harmless change if there is none."""
        if not self.faults:
            return self.change
        if len(self.faults) == 1:
            return self.faults[0].parameters
        return {fault.target: fault.parameters for fault in self.faults}

    @property
    def rolled_out_services(self) -> dict[str, int]:
        """When (ns) a harmless change last replaced the pods of each service."""
        return rolled_out_services(pd.DataFrame(self.evidence, columns=["check", "subject", "time"]))

    def add_evidence(self, check: str, subject: str, passed: bool, detail: str) -> None:
        """Add a row of evidence with the current time."""
        row = {"check": check, "subject": subject, "time": self.clock.time_ns(), "passed": passed, "detail": detail}
        self.evidence.append(row)
