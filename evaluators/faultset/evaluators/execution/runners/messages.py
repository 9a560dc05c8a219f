"""What an evaluation and its runner processes send each other.

Requests go from the evaluation to the methods and are pickled. What comes back was in the hands of a method and is
plain data: JSON, and bytes that nobody but the same method opens. `replies.py` reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from faultset.datasets.format.labels import AlarmPlace

Action = Literal["detect", "localize", "diagnose"]


class TrainingLabel(NamedTuple):
    """What is true of one training episode; the fields of `Labelled` but its view."""

    service: str | None
    system_level: str | None
    fault_type: str | None
    causes: tuple[str, ...] = ()
    onset_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Blob:
    """Bytes that a runner is sent once and then knows by their digest."""

    digest: str
    data: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Wrap bytes."""
        return cls(digest=hashlib.sha256(data).hexdigest(), data=data)

    @property
    def without_data(self) -> Blob:
        """The digest alone, for a runner that has the bytes."""
        return replace(self, data=b"")


EMPTY_BLOB = Blob.of(b"")


@dataclass(frozen=True, kw_only=True)
class MethodProcess:
    """The process that a request is carried out in, and what it can reach.

    Requests of one method about one episode share a process. Methods that come with faultset share one for all
    episodes of a task, so that frames are made once, and a process is not made for every answer.
    """

    key: str
    """Requests with the same key are carried out in the same process while it lives."""
    built_in: bool
    """Whether only code of faultset runs in it."""
    episodes: tuple[str, ...]
    """Folders of the episodes whose context and telemetry can be read."""
    tables: tuple[str, ...] | None
    """Tables that can be read; None for all."""
    code: tuple[str, ...] = ()
    """Files and folders of the method's own code."""
    hidden: tuple[str, ...] = ()
    """Files and folders that cannot be read even where they lie in a folder that can."""


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """Build a baseline and fit it."""

    number: int
    process: MethodProcess
    spec: Blob
    """The baseline's spec, by cloudpickle, so that baselines written in a notebook or test arrive too."""
    seed: int
    episodes: tuple[str, ...]
    """Folders of the training episodes."""
    labels: tuple[TrainingLabel, ...] = ()
    """What is true of each episode, for a baseline that needs labels."""


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """Run a fitted baseline on one episode."""

    number: int
    process: MethodProcess
    action: Action
    spec: Blob
    model: Blob
    """The fitted baseline, by cloudpickle."""
    seed: int
    episode: str
    """Folder of the episode."""
    alarm_ns: int = 0
    """Alarm that a localizer or diagnoser is given."""
    alarm_place: AlarmPlace | None = None
    """Where it was seen, for a method that declares that it uses this."""


@dataclass(frozen=True, kw_only=True)
class CheckedAnswer:
    """An answer that can be scored, as plain data."""

    text: str
    """JSON of everything but the ranking."""
    alarm_ns: int | None = None
    ranking: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunnerReply:
    """The result of a request: an answer or a fitted model, or why there is none."""

    number: int
    status: Literal["ok", "invalid", "error", "cannot"]
    answer: CheckedAnswer | None = None
    model: bytes = b""
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
