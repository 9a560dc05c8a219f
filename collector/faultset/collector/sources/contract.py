"""Sources of telemetry: one for each table of a platform, and those that a campaign adds to them.

Added sources are announced in the entry-point group `faultset.sources`; a campaign chooses them by name.
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
    """One table of telemetry, readable for a window after it has passed."""

    table: str

    @property
    def interval_s(self) -> float | None:
        """Seconds between samples; None where rows come when something happens."""
        ...

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `[start_ns, end_ns)` in the table's schema, without the `episode` column.

        Times are UTC nanoseconds since 1970. A window may be read more than once.
        """
        ...

    def close(self) -> None:
        """Release files and connections; may be called twice."""
        ...


@runtime_checkable
class SeriesReader(Protocol):
    """A source of metrics that reads one series much sooner than all, as over a network."""

    def recent(self, metric: str, pod: str, window_s: float) -> pa.Table:
        """Return time (nanoseconds, UTC) and value of one pod's metric in the last `window_s` seconds, in order."""
        ...


@runtime_checkable
class EarlyReader(Protocol):
    """A source that takes long to read, and may begin while the application recovers."""

    def read_early(self, start_ns: int, end_ns: int, healthy_until_ns: int) -> None:
        """Begin to read `[start_ns, healthy_until_ns)` of a window that has passed, without waiting for it.

        The snapshot of `[start_ns, end_ns)` that follows is the same as without. No fault acted before
        `healthy_until_ns`, so that telemetry from then was not held back.
        """
        ...


@runtime_checkable
class NotingSource(Protocol):
    """A source that says what its last snapshot lacks or what the server changed, each in a sentence."""

    notes: tuple[str, ...]


class ObjectReader(Protocol):
    """What an added source sees of the platform."""

    @property
    def app(self) -> AppSpec:
        """The application that runs."""
        ...

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return a copy of one Kubernetes object."""
        ...

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[dict[str, Any]]:
        """Return copies of all objects of a kind that carry the labels."""
        ...


@dataclass(frozen=True, kw_only=True)
class SourceTarget:
    """What an added source is given, once for each episode.

    Attributes
    ----------
    platform
        The objects of the application.
    schema
        Columns and types of the batches that `snapshot` yields.
    interval_s
        The campaign's sampling interval in seconds.
    folder
        An empty folder for working files, which is removed after the episode.
    """

    platform: ObjectReader
    schema: pa.Schema
    interval_s: float
    folder: Path


class AddedSource(Source, Protocol):
    """A source that a campaign adds to those of the platform. Made anew for each episode.

    The first line of the class's docstring says what it records.
    """

    table: str
    """`metrics`, `spans`, `logs` or `events` to add rows to, or the name of a table of its own."""
    columns: ClassVar[Sequence[AddedColumn]]
    """The columns of a table of its own, beside `time`; empty for a table that every episode has."""
    metric_roles: ClassVar[Sequence[MetricRole]]
    """What its metrics mean, and their units, for a source of `metrics`; empty for any other."""

    def __init__(self, target: SourceTarget) -> None: ...

    def start(self) -> None:
        """Begin to record; called once, when the application is ready and before the load begins."""
        ...
