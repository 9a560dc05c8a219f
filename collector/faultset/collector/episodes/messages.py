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
    """Input of an episode's process.

    Attributes
    ----------
    root
        The dataset's folder.
    parent
        Process id of the campaign; the episode ends when that process ends.
    parallel
        Maximum number of concurrent episodes of the campaign.
    settings
        Settings of the platform's host.
    repairs
        Repairs to try in order at the end of the view until one succeeds; an episode with repairs is not written.
    """

    plan: Plan
    root: Path
    parent: int
    parallel: int
    settings: dict[str, Any]
    repairs: tuple[RepairOrder, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PhaseReport(Message):
    """An episode has entered a phase."""

    phase: str


@dataclass(frozen=True, kw_only=True)
class EpisodeOutcome(Message):
    """How an episode ended: its verdict, or the reason for its failure.

    Attributes
    ----------
    failure
        Why the episode failed; empty on success.
    retriable
        Whether the same plan may succeed next time.
    disturbed_by_host
        Whether a busy host probably caused the failure.
    void_cause
        Kind of the failure, for counts of void attempts.
    needs_recovery
        Whether `faultset recover` must undo remaining changes; `failure` names them.
    exit_code
        The command's exit code for this kind of failure.
    logs
        Folder with the logs and the journal of a failed episode.
    source_failures
        Name of each added source that failed, with the reason.
    mitigations
        Result of each repair that was tried.
    """

    episode: str
    failure: str = ""
    verdict: str | None = None
    interrupted: bool = False
    retriable: bool = True
    disturbed_by_host: bool = False
    void_cause: str = OTHER_FAILURE
    needs_recovery: bool = False
    exit_code: int = 0
    durations_s: dict[str, float] = field(default_factory=dict)
    logs: Path | None = None
    source_failures: dict[str, str] = field(default_factory=dict)
    mitigations: tuple[MitigationResult, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LogReport(Message):
    """A log line of an episode's process; `level` is a level of `logging`."""

    level: int
    text: str


EpisodeMessage = PhaseReport | LogReport | EpisodeOutcome


def encode_message(message: EpisodeAssignment | EpisodeMessage) -> str:
    """Encode a message as one line."""
    return encode(message).decode() + "\n"


def decode_message(line: str) -> EpisodeMessage:
    """Decode a line from an episode's process; raise InvalidMessage if that fails."""
    return decode(EpisodeMessage, line)
