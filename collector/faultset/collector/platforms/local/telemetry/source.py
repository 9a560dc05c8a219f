"""Messages of the telemetry process, and the source that reads its metrics and spans."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from faultset.collector.ipc.channel import Channel, Message, Request

TABLES = ("metrics", "spans")


@dataclass(frozen=True, kw_only=True)
class ScrapeTarget(Message):
    """A pod of the application; `address` is where it serves metrics, None if it does not."""

    pod: str
    service: str | None
    container: str | None
    address: tuple[str, int] | None


@dataclass(frozen=True, kw_only=True)
class ConfigureTelemetry(Request[None]):
    """Replace the list of pods."""

    targets: tuple[ScrapeTarget, ...]


@dataclass(frozen=True, kw_only=True)
class StateSample(Message):
    """A sample of an object's state with a metric name of kube-state-metrics; `kind` is counter or gauge."""

    metric: str
    service: str | None
    pod: str | None
    container: str | None
    labels: dict[str, str]
    kind: str
    value: float


@dataclass(frozen=True, kw_only=True)
class ReplaceState(Request[None]):
    """Replace the samples of object states, which are repeated at every scrape."""

    samples: tuple[StateSample, ...]


@dataclass(frozen=True, kw_only=True)
class WriteSnapshot(Request[dict[str, int]]):
    """Write the rows of `[start_ns, end_ns)` to `<table>.arrow` in a folder; return the number of rows by table.

    Attributes
    ----------
    folder
        None for the default folder of the process.
    """

    start_ns: int
    end_ns: int
    folder: Path | None = None
    tables: tuple[str, ...] = TABLES


@dataclass(frozen=True, kw_only=True)
class DiscardTelemetry(Request[None]):
    """Remove the rows of a table before a time."""

    table: str
    before_ns: int


@dataclass(frozen=True, kw_only=True)
class TelemetryHealth(Message):
    """Counts of received telemetry and the worst delay of a scrape."""

    spans: int
    samples: int
    scrapes: int
    scrape_failures: dict[str, int]
    last_scrape_ns: int | None
    worst_lag_ms: float


@dataclass(frozen=True, kw_only=True)
class ReadHealth(Request[TelemetryHealth]):
    """Return the health of telemetry.

    Attributes
    ----------
    reset_lag
        Reset the worst delay, for example when the load starts.
    """

    reset_lag: bool = False


class TelemetrySource:
    """The source of one table of the telemetry process.

    Parameters
    ----------
    table
        metrics or spans.
    channel
        Connection to the telemetry process; not closed here.
    folder
        Folder for snapshots; removed by `close`.
    interval_s
        Time between two samples of a series; None for spans.
    """

    def __init__(self, table: str, channel: Channel, folder: Path, *, interval_s: float | None = None):
        self.table = table
        self.interval_s = interval_s
        self._channel = channel
        self._folder = Path(folder) / table

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in `[start_ns, end_ns)` in time order."""
        self._channel.call(WriteSnapshot(folder=self._folder, start_ns=start_ns, end_ns=end_ns, tables=(self.table,)))
        with (
            pa.memory_map(str(self._folder / f"{self.table}.arrow")) as file,
            pa.ipc.open_file(file) as reader,
        ):
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)

    def discard(self, before_ns: int) -> None:
        """Remove the rows before a time."""
        self._channel.call(DiscardTelemetry(table=self.table, before_ns=before_ns))

    def close(self) -> None:
        """Remove the files; may be called twice."""
        shutil.rmtree(self._folder, ignore_errors=True)
