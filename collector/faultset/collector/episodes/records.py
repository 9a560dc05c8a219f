"""What is recorded of an episode while it runs: instants, parameters, evidence, durations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faultset.collector.episodes.clock import SYSTEM_CLOCK, EpisodeClock
from faultset.collector.faults.registry import FaultSpec
from faultset.collector.plans.plan import Plan


@dataclass(frozen=True, kw_only=True)
class ViewBounds:
    """Bounds of an episode's view in UTC nanoseconds, half-open; the reference is its healthy begin."""

    start_ns: int
    reference_end_ns: int
    end_ns: int


@dataclass
class EpisodeRecord:
    """What happened in an episode, and when.

    All instants are UTC nanoseconds, None for what did not happen.

    Attributes
    ----------
    parallel
        How many episodes the campaign runs at a time.
    before
        What the fault's `observe` returned before the injection.
    parameters
        What the injection returned.
    durations_s
        Seconds spent on each command of the state machine.
    clock
        Gives the times of the evidence.
    """

    plan: Plan
    fault: FaultSpec | None
    parallel: int = 1
    inject_start_ns: int | None = None
    inject_done_ns: int | None = None
    effective_ns: int | None = None
    recover_start_ns: int | None = None
    recover_done_ns: int | None = None
    healthy_again_ns: int | None = None
    before: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    durations_s: dict[str, float] = field(default_factory=dict)
    clock: EpisodeClock = SYSTEM_CLOCK

    def add_evidence(self, check: str, subject: str, passed: bool, detail: str) -> None:
        """Add a row of evidence with the present time."""
        row = {"check": check, "subject": subject, "time": self.clock.time_ns(), "passed": passed, "detail": detail}
        self.evidence.append(row)
