"""The contracts of telemetry sources: one per table of a platform, and sources added by a campaign.

Added sources register in the entry-point group `faultset.sources`; a campaign chooses them by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import pyarrow as pa

from faultset.collector.spec.app import AppSpec
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.metrics.roles import MetricRole


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
class NotingSource(Protocol):
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
