"""Metrics and spans of the local platform as sources of an episode."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from faultset.collector.ipc.channel import Channel
from faultset.collector.platforms.local.telemetry.messages import WriteSnapshot


class TelemetrySource:
    """One table of the telemetry process.

    Parameters
    ----------
    table
        metrics or spans.
    channel
        The telemetry process; it belongs to the platform and is not closed here.
    folder
        Where the process writes what is read here; removed by `close`.
    interval_s
        Time between two samples of a series; None for spans.
    """

    def __init__(self, table: str, channel: Channel, folder: Path, *, interval_s: float | None = None):
        self.table = table
        self.interval_s = interval_s
        self._channel = channel
        self._folder = Path(folder) / table

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `[start_ns, end_ns)` in order of time."""
        self._channel.call(WriteSnapshot(folder=self._folder, start_ns=start_ns, end_ns=end_ns, tables=(self.table,)))
        with (
            pa.memory_map(str(self._folder / f"{self.table}.arrow")) as file,
            pa.ipc.open_file(file) as reader,
        ):
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)

    def close(self) -> None:
        """Remove the files; may be called twice."""
        shutil.rmtree(self._folder, ignore_errors=True)
