"""The base class of sources that sample periodically."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from faultset.collector.sources.contract import SourceTarget
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.metrics.roles import MetricRole
from faultset.datasets.telemetry_formats.prometheus import canonical_labels


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
