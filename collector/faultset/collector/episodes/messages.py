"""Messages between a campaign and the process of an episode: one line each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Message, decode, encode
from faultset.collector.mitigation.messages import MitigationResult, RepairOrder
from faultset.collector.plans.plan import Plan

OTHER_FAILURE = "other failure"
"""Default cause of a void attempt."""


@dataclass(frozen=True, kw_only=True)
class EpisodeAssignment(Message):
    """Input of an episode's process."""

    plan: Plan
    root: Path
    """The dataset's folder."""
    parent: int
    """Process id of the campaign; the episode ends when that process ends."""
    parallel: int
    """Maximum number of concurrent episodes of the campaign."""
    settings: dict[str, Any]
    """Settings of the platform's host."""
    repairs: tuple[RepairOrder, ...] = ()
    """Repairs to try in order at the end of the view until one succeeds; an episode with repairs is not written."""


@dataclass(frozen=True, kw_only=True)
class PhaseReport(Message):
    """An episode has entered a phase."""

    phase: str


@dataclass(frozen=True, kw_only=True)
class EpisodeOutcome(Message):
    """How an episode ended: its verdict, or the reason for its failure."""

    episode: str
    failure: str = ""
    """Why the episode failed; empty on success."""
    verdict: str | None = None
    interrupted: bool = False
    retriable: bool = True
    """Whether the same plan may succeed next time."""
    disturbed_by_host: bool = False
    """Whether a busy host probably caused the failure."""
    void_cause: str = OTHER_FAILURE
    """Kind of the failure, for counts of void attempts."""
    needs_recovery: bool = False
    """Whether `faultset recover` must undo remaining changes; `failure` names them."""
    exit_code: int = 0
    """The command's exit code for this kind of failure."""
    durations_s: dict[str, float] = field(default_factory=dict)
    logs: Path | None = None
    """Folder with the logs and the journal of a failed episode."""
    source_failures: dict[str, str] = field(default_factory=dict)
    """Name of each added source that failed, with the reason."""
    mitigations: tuple[MitigationResult, ...] = ()
    """Result of each repair that was tried."""


@dataclass(frozen=True, kw_only=True)
class LogReport(Message):
    """A log line of an episode's process; `level` is a level of `logging`."""

    level: int
    text: str


EpisodeMessage = PhaseReport | LogReport | EpisodeOutcome


def encode_message(message: EpisodeAssignment | EpisodeMessage) -> str:
    return encode(message).decode() + "\n"


def decode_message(line: str) -> EpisodeMessage:
    """Decode a line from an episode's process; raise InvalidMessage if that fails."""
    return decode(EpisodeMessage, line)
