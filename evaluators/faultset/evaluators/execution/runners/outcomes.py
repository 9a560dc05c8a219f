"""What a baseline may use for one answer, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from faultset.evaluators.execution.runners.messages import CheckedAnswer
from faultset.evaluators.results.rows import Status


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """What a baseline may use for one answer."""

    timeout_s: float = 60.0
    memory_bytes: int = 2 << 30

    def for_fit(self) -> RunLimits:
        """Limits for learning from many episodes at once."""
        return RunLimits(timeout_s=5 * self.timeout_s, memory_bytes=self.memory_bytes)


@dataclass(frozen=True, kw_only=True)
class RunnerOutcome:
    """The result of one request, whatever happened to the process."""

    status: Status
    answer: CheckedAnswer | None = None
    model: bytes = b""
    """The fitted baseline, after a `FitRequest`."""
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float | None = None
    """None where the process did not live to tell."""
    peak_bytes: int = 0


class RunnerStopped(Exception):
    """The evaluation is being ended; no more requests are taken."""
