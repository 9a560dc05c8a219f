"""Messages between an evaluation and its method processes.

Requests are pickled. Replies come from untrusted code, so they are plain data; see `answers`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from faultset.datasets.format.labels import AlarmLocation
from faultset.evaluators.results.rows import Status

Action = Literal["detect", "localize", "diagnose"]


class TrainingLabel(NamedTuple):
    """Ground truth of one training episode: the fields of `Labelled` except its view."""

    service: str | None
    system_level: str | None
    fault_type: str | None
    causes: tuple[str, ...] = ()
    onset_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Blob:
    """Bytes that are sent to a runner once and later referred to by digest."""

    digest: str
    data: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> Blob:
        return cls(digest=hashlib.sha256(data).hexdigest(), data=data)


EMPTY_BLOB = Blob.of(b"")


@dataclass(frozen=True, kw_only=True)
class MethodProcess:
    """The process that serves a request, and the files it may read.

    A third-party method gets one process per episode. Built-in methods share one process for all episodes of a dask
    task: frames are computed once, and no process is started per answer.
    """

    key: str
    """Requests with the same key are served by the same process while it is alive."""
    built_in: bool
    """Whether it runs only methods that come with faultset."""
    episodes: tuple[str, ...]
    """Folders of the episodes whose context and telemetry are readable."""
    tables: tuple[str, ...] | None
    """Readable tables; None for all."""
    code: tuple[str, ...] = ()
    """Files and folders of the method's code."""
    hidden: tuple[str, ...] = ()
    """Files and folders that may not be read, even inside a readable folder."""


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """Build a baseline and fit it."""

    number: int
    process: MethodProcess
    spec: Blob
    """The baseline's spec, serialised with cloudpickle so that methods defined in a notebook work too."""
    seed: int
    episodes: tuple[str, ...]
    """Folders of the training episodes."""
    labels: tuple[TrainingLabel, ...] = ()
    """Ground truth of each episode, for a baseline that needs labels."""

    def map_blobs(self, convert: Callable[[Blob], Blob]) -> FitRequest:
        return replace(self, spec=convert(self.spec))


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """Run a fitted baseline on one episode."""

    number: int
    process: MethodProcess
    action: Action
    spec: Blob
    model: Blob
    """The fitted baseline, serialised with cloudpickle."""
    seed: int
    episode: str
    """Folder of the episode."""
    alarm_ns: int = 0
    """Alarm passed to a localizer or diagnoser."""
    alarm_location: AlarmLocation | None = None
    """Service and metric of the alarm, for a method that declares `alarm_location` among its needs."""

    def map_blobs(self, convert: Callable[[Blob], Blob]) -> AnswerRequest:
        return replace(self, spec=convert(self.spec), model=convert(self.model))


@dataclass(frozen=True, kw_only=True)
class CheckedAnswer:
    """A valid answer as plain data."""

    text: str
    """JSON of everything except the ranking."""
    alarm_ns: int | None = None
    ranking: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunnerOutcome:
    """The result of one request, including crashes and exceeded limits."""

    status: Status
    answer: CheckedAnswer | None = None
    model: bytes = b""
    """The fitted baseline, after a `FitRequest`."""
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float | None = None
    """None if the process died before it could report."""
    peak_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Limits for one answer of a baseline."""

    timeout_s: float = 60.0
    memory_bytes: int = 2 << 30

    def describe_excess(self, peak_bytes: int) -> str:
        """Return the reason for ending a process that used too much memory."""
        return f"used {peak_bytes / 2**20:.0f} MiB, but the limit is {self.memory_bytes / 2**20:.0f} MiB"

    def for_fit(self) -> RunLimits:
        """Return the limits for a fit, which reads many episodes."""
        return RunLimits(timeout_s=5 * self.timeout_s, memory_bytes=self.memory_bytes)


class RunnerStopped(Exception):
    """The evaluation is stopping and accepts no more requests."""
