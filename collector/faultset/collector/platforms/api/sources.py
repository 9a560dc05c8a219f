"""Sources of telemetry: one for each table of an episode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import pyarrow as pa


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
