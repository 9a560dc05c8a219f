"""What a baseline may use for one answer, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from faultset.evaluators.execution.runners.messages import CheckedAnswer
from faultset.evaluators.results.rows import ResultRow, Status
from faultset.evaluators.results.stored_answers import StoredAnswer
from faultset.evaluators.results.truth import Truth


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


def filled_row(row: ResultRow, outcome: RunnerOutcome) -> ResultRow:
    """Put what came of a request into its row."""
    answer, status, reason = outcome.answer, outcome.status, outcome.reason
    if answer is not None and (wrong := _impossible(answer, row.truth)):
        answer, status, reason = None, "error", f"wrote something else than its answer ({wrong})"
    return replace(
        row,
        status=status,
        reason=reason,
        seconds=round(outcome.seconds, 6),
        cpu_seconds=None if outcome.cpu_seconds is None else round(outcome.cpu_seconds, 6),
        peak_bytes=outcome.peak_bytes,
        alarm_ns=None if answer is None else answer.alarm_ns,
        ranking={} if answer is None else answer.ranking,
        answer=StoredAnswer("{}" if answer is None else answer.text),
    )


def _impossible(answer: CheckedAnswer, truth: Truth) -> str:
    """Say what an answer names that the episode does not have: a method that got past its checks has written it."""
    if not answer.ranking.keys() <= {*truth.candidates}:
        return "it ranks services that are no candidates"
    if answer.alarm_ns is not None and not truth.view_start_ns <= answer.alarm_ns <= truth.view_end_ns:
        return "its alarm lies outside of the view"
    return ""
