"""Scoring imported runs: every source against its own labels, beside what the source recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faultset.agents.formats.contract import AgentFormat
from faultset.agents.formats.registry import agent_format
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.runs.storage import read_runs, read_truths
from faultset.core.errors import DataError
from faultset.core.printable import printable

_MISSES = ("harness_error", "cheated")


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """One run with its result by its source's own labels."""

    run: AgentRun
    """What the agent did."""
    truth: RunTruth
    """What the source says of it."""
    success: bool | None
    """None where the source's labels, or a recording, do not tell."""
    value: float | None
    """Score from 0 to 1; None where `success` is."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Name of a part of the score -> its value."""
    difference: str = ""
    """Why the result is not the recorded one; empty where it is, or where the reason is not known."""

    @property
    def agrees(self) -> bool | None:
        """Whether the result is the recorded one; None where there are not both."""
        if self.success is None or self.truth.recorded_success is None:
            return None
        return self.success == self.truth.recorded_success


def score_runs(folder: Path | str) -> list[ScoredRun]:
    """Score the runs of a folder that `import_runs` has made, each against its own source's labels.

    A run without an answer, of a broken harness, or in which the agent cheated, is a miss.

    Raises
    ------
    DataError
        It is no such folder, or it is damaged.
    """
    truths = read_truths(folder)
    formats: dict[str, AgentFormat] = {}
    found = []
    for run in read_runs(folder):
        if run.run not in truths:
            raise DataError(f"{printable(folder)} holds no truth of {printable(run.run)}; import the runs again")
        if run.format not in formats:
            formats[run.format] = agent_format(run.format)
        found.append(_scored(formats[run.format], run, truths[run.run]))
    return found


def _scored(source: AgentFormat, run: AgentRun, truth: RunTruth) -> ScoredRun:
    own = source.score(run, truth.truth) if truth.truth is not None else None
    if own is None:
        return ScoredRun(run=run, truth=truth, success=None, value=None)
    missed = run.status in _MISSES or run.answer_json is None
    success, value = (False, 0.0) if missed else (own.success, own.value)
    parts = {} if missed else own.parts
    difference = ""
    if truth.recorded_success is not None and success != truth.recorded_success:
        difference = _difference(source, run, truth, success)
    return ScoredRun(run=run, truth=truth, success=success, value=value, parts=parts, difference=difference)


def _difference(source: AgentFormat, run: AgentRun, truth: RunTruth, success: bool) -> str:
    if run.status in _MISSES:
        return f"{run.status}: {run.status_reason}"
    return source.difference(run, truth, success)
