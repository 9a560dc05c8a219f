"""The contracts of telemetry sources: one per table of a platform, and sources added by a campaign.

Added sources register in the entry-point group `faultset.sources`; a campaign chooses them by name.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import pyarrow as pa

from faultset.collector.spec.app import AppSpec
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.metrics.roles import MetricRole
from faultset.datasets.telemetry_formats.prometheus import canonical_labels


class Source(Protocol):
    """A source of one telemetry table, read for a window after the window has ended."""

    table: str

    @property
    def interval_s(self) -> float | None:
        """Return the seconds between samples; None for event-driven rows."""
        ...

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `[start_ns, end_ns)` in the table's schema, without the `episode` column.

        Times are UTC nanoseconds. A window may be read several times.
        """
        ...

    def close(self) -> None:
        """Release files and connections; may be called twice."""
        ...


@runtime_checkable
class SeriesReader(Protocol):
    """A source of metrics that can read one series much faster than all series."""

    def recent(self, metric: str, pod: str, window_s: float) -> pa.Table:
        """Return the time (UTC nanoseconds) and value of a pod's metric in the last `window_s` seconds, in order."""
        ...


@runtime_checkable
class EarlyReader(Protocol):
    """A slow source that can start reading while the application recovers."""

    def read_early(self, start_ns: int, end_ns: int, healthy_until_ns: int) -> None:
        """Start reading `[start_ns, healthy_until_ns)` of a past window in the background.

        The next snapshot of `[start_ns, end_ns)` must have the same rows as without this call. No fault was active
        before `healthy_until_ns`, so telemetry up to then is not delayed.
        """
        ...


@runtime_checkable
class SourceWithNotes(Protocol):
    """A source with notes on its last snapshot, one sentence each: gaps, and data that the server changed."""

    notes: tuple[str, ...]


@runtime_checkable
class ExemplarReader(Protocol):
    """A source of metrics whose server keeps exemplars."""

    def exemplars(self, start_ns: int, end_ns: int) -> Iterator[Mapping[str, Any]]:
        """Yield the exemplars of `[start_ns, end_ns)` in time order, as rows of the table `exemplars`."""
        ...


@runtime_checkable
class DiscardingSource(Protocol):
    """A source that can free the memory of old rows, for long recordings."""

    def discard(self, before_ns: int) -> None:
        """Drop rows before a time; later snapshots start after it."""
        ...


class ObjectReader(Protocol):
    """Read access of an added source to the platform."""

    @property
    def app(self) -> AppSpec:
        """Return the running application."""
        ...

    @property
    def sources(self) -> Mapping[str, Source]:
        """Return the platform's sources by table."""
        ...

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return a copy of a Kubernetes object."""
        ...

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[dict[str, Any]]:
        """Return copies of all objects of a kind with the given labels."""
        ...


@dataclass(frozen=True, kw_only=True)
class SourceTarget:
    """The inputs of an added source in one episode.

    Attributes
    ----------
    platform
        Read access to the application's objects.
    schema
        Schema of the batches that `snapshot` must yield.
    interval_s
        Sampling interval of the campaign in seconds.
    folder
        Empty scratch folder, removed after the episode.
    """

    platform: ObjectReader
    schema: pa.Schema
    interval_s: float
    folder: Path


class AddedSource(Source, Protocol):
    """A source added by a campaign; one instance per episode.

    The first line of the class's docstring must describe what it records.
    """

    table: str
    """`metrics`, `spans`, `logs` or `events` to add rows to, or the name of a new table."""
    columns: ClassVar[Sequence[AddedColumn]]
    """Columns of a new table in addition to `time`; empty for an existing table."""
    metric_roles: ClassVar[Sequence[MetricRole]]
    """Meaning and units of its metrics, for a source of `metrics`; otherwise empty."""

    def __init__(self, target: SourceTarget) -> None: ...

    def start(self) -> None:
        """Start recording; called once, when the application is ready and before the load starts."""
        ...


class SampledSource(ABC):
    """Calls `sample` in a thread once per interval and stores the rows.

    An exception stops sampling and is raised by `snapshot`. Catch occasional failures in `sample` and leave out the
    row.
    """

    table: str
    columns: ClassVar[Sequence[AddedColumn]] = ()
    metric_roles: ClassVar[Sequence[MetricRole]] = ()

    def __init__(self, target: SourceTarget):
        self.target = target
        self._kinds = {role.metric: role.kind for role in self.metric_roles}
        self._rows: list[dict[str, Any]] = []
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def sample(self) -> Iterable[Mapping[str, Any]]:
        """Return the current rows as mappings from column to value.

        `time` (UTC nanoseconds) defaults to the time of the call. A row of `metrics` needs `metric` and `value`;
        `labels` may be a mapping, and `kind` defaults to the kind of the metric's role.
        """

    @property
    def interval_s(self) -> float | None:
        """Return the seconds between samples."""
        return self.target.interval_s

    def start(self) -> None:
        """Start sampling."""
        self._thread = threading.Thread(target=self._run, name=f"source of {self.table}", daemon=True)
        self._thread.start()

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `[start_ns, end_ns)`; raise the exception that stopped sampling, if any."""
        if self._error is not None:
            raise self._error
        rows = [row for row in list(self._rows) if start_ns <= row["time"] < end_ns]
        yield pa.RecordBatch.from_pylist(rows, schema=self.target.schema)

    def close(self) -> None:
        """Stop sampling; may be called twice."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        interval_s = self.target.interval_s
        due = time.monotonic()
        while not self._closed.is_set():
            now_ns = time.time_ns()
            try:
                self._rows.extend(self._complete(row, now_ns) for row in self.sample())
            except Exception as error:  # raised when the rows are read
                self._error = error
                return
            due = max(due + interval_s, time.monotonic())
            self._closed.wait(due - time.monotonic())

    def _complete(self, row: Mapping[str, Any], now_ns: int) -> dict[str, Any]:
        row = {"time": now_ns, **row}
        if self.table == "metrics":
            labels = row.get("labels", {})
            row["labels"] = labels if isinstance(labels, str) else canonical_labels(labels)
            row.setdefault("kind", self._kinds.get(row["metric"]))
        return row
