"""Messages between a campaign and the process of an episode: one line each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Message, decode_value, encode
from faultset.collector.mitigation.messages import MitigationResult, RepairOrder
from faultset.collector.plans.plan import Plan

OTHER_FAILURE = "other failure"
"""Cause of a void attempt that has no name of its own."""


@dataclass(frozen=True, kw_only=True)
class EpisodeAssignment(Message):
    """What the process of an episode is given.

    Attributes
    ----------
    root
        The dataset's folder.
    parent
        Process id of the campaign; the episode ends with it.
    parallel
        How many episodes the campaign runs at a time.
    settings
        Settings of the platform's host.
    repairs
        What is done about the fault at the end of the view, one after the other until one has repaired the application,
        instead of writing the episode.
    cores
        Processors that the episode runs on; all by default.
    """

    plan: Plan
    root: Path
    parent: int
    parallel: int
    settings: dict[str, Any]
    repairs: tuple[RepairOrder, ...] = ()
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PhaseReport(Message):
    """An episode has entered a phase, which is expected to end at `end_ns`."""

    phase: str
    end_ns: int | None


@dataclass(frozen=True, kw_only=True)
class EpisodeOutcome(Message):
    """How an episode ended: its verdict, or why there is none.

    Attributes
    ----------
    failure
        Why the episode came to nothing; empty when it did not.
    retriable
        Whether the same plan may succeed when it is run again.
    spoiled_by_host
        Whether the failure is put down to a host that was too busy.
    void_cause
        Kind of the failure, for counts of void attempts.
    needs_recovery
        Whether changes are left that `faultset recover` must undo; `failure` says so.
    exit_code
        The command's exit code for this kind of failure.
    logs
        Folder with the logs and the journal of a failed episode.
    source_failures
        Name of each added source that failed, with the reason.
    mitigations
        What came of each repair that was tried.
    """

    episode: str
    failure: str = ""
    verdict: str | None = None
    interrupted: bool = False
    retriable: bool = True
    spoiled_by_host: bool = False
    void_cause: str = OTHER_FAILURE
    needs_recovery: bool = False
    exit_code: int = 0
    durations_s: dict[str, float] = field(default_factory=dict)
    sli_fires: bool = False
    latent_fires: bool = False
    logs: Path | None = None
    source_failures: dict[str, str] = field(default_factory=dict)
    mitigations: tuple[MitigationResult, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LogReport(Message):
    """A line that the process of an episode has logged; `level` is a number of `logging`."""

    level: int
    text: str


EpisodeMessage = PhaseReport | LogReport | EpisodeOutcome


def write_message(message: EpisodeAssignment | EpisodeMessage) -> str:
    """Return a message as one line, with its line end."""
    return encode(message).decode() + "\n"


def read_message(line: str) -> EpisodeMessage:
    """Return the message that an episode's process has written as one line; raise InvalidMessage when it is none."""
    return decode_value(EpisodeMessage, line)
