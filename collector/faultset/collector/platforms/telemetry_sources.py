"""Sources of logs, events and object states."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from faultset.collector.platforms.objects import ChangeLog, EventRecord
from faultset.core.files import replace_surrogates
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.telemetry_formats.kubernetes_objects import parse_rfc3339_ns
from faultset.datasets.telemetry_formats.log_lines import parse_record, read_records

OBJECT_INTERVAL_S = 10.0
_BATCH_ROWS = 50_000


def _build_batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([column for column in TABLES[table] if column.name != "episode"])
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    count = 0
    for row in rows:
        for name, column in columns.items():
            column.append(row[name])
        count += 1
        if count % _BATCH_ROWS == 0:
            yield _build_batch(schema, columns)
            columns = {name: [] for name in schema.names}
    if count == 0 or count % _BATCH_ROWS:
        yield _build_batch(schema, columns)


def _build_batch(schema: pa.Schema, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    arrays = []
    for column in schema:
        values = [replace_surrogates(value) if isinstance(value, str) else value for value in columns[column.name]]
        if pa.types.is_dictionary(column.type):
            arrays.append(pa.array(values, column.type.value_type).dictionary_encode().cast(column.type))
        else:
            arrays.append(pa.array(values, column.type))
    return pa.record_batch(arrays, schema=schema)


class HasEvents(Protocol):
    """A recorder of events."""

    events: list[EventRecord]


class _RecordedSource:
    interval_s: float | None = None

    def close(self) -> None:
        """Do nothing; no file is open."""


class EventSource(_RecordedSource):
    """The source of events."""

    table = "events"

    def __init__(self, log: HasEvents):
        self._log = log

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        rows = (
            {**vars(event), "time": event.time_ns}
            for event in list(self._log.events)
            if start_ns <= event.time_ns < end_ns
        )
        return _build_batches("events", rows)

    def discard(self, before_ns: int) -> None:
        # another thread appends, so only the beginning is changed
        del self._log.events[: sum(1 for _ in takewhile(lambda event: event.time_ns < before_ns, self._log.events))]


class ObjectSource(_RecordedSource):
    """The source of object states, with a row on every change and every ten seconds."""

    table = "objects"
    interval_s = OBJECT_INTERVAL_S

    def __init__(self, log: ChangeLog):
        self._log = log

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        observations = self._log.observe(start_ns, end_ns, int(OBJECT_INTERVAL_S * 1e9))
        rows = ({**vars(observation), "time": observation.time_ns} for observation in observations)
        return _build_batches("objects", rows)

    def discard(self, before_ns: int) -> None:
        self._log.discard(before_ns)


class LogSource(_RecordedSource):
    """The source of log records, which also reads the logs of removed containers and pods.

    Parameters
    ----------
    folder
        Contains `<pod>/<container>/<restart>.log` in the format of container runtimes.
    """

    table = "logs"

    def __init__(self, folder: Path, service_of_pod: Callable[[str], str | None]):
        self._folder = folder
        self._service_of_pod = service_of_pod
        self._offsets: dict[Path, int] = {}

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the records that start in `[start_ns, end_ns)`, container by container."""
        return _build_batches("logs", self._rows(start_ns, end_ns))

    def discard(self, before_ns: int) -> None:
        """Skip the lines before a time in all later snapshots."""
        files = [*self._folder.glob("*/*/*.log")]
        self._offsets = {path: _find_offset(path, before_ns, self._offsets.get(path, 0)) for path in files}

    def _rows(self, start_ns: int, end_ns: int) -> Iterator[dict[str, Any]]:
        for path in sorted(self._folder.glob("*/*/*.log"), key=_sort_key):
            if path.stat().st_mtime_ns < start_ns:
                continue
            pod, container = path.parent.parent.name, path.parent.name
            service = self._service_of_pod(pod)
            with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                file.seek(self._offsets.get(path, 0))
                for time_ns, text in read_records(file, end_ns):
                    if time_ns >= start_ns:
                        line = parse_record(text)
                        yield {
                            "time": time_ns,
                            "service": service,
                            "pod": pod,
                            "container": container,
                            "level": line.level,
                            "message": line.message,
                            "trace_id": line.trace_id,
                            "span_id": line.span_id,
                        }


def _sort_key(path: Path) -> tuple[str, int]:
    return str(path.parent), int(re.sub(r"\D", "", path.stem) or 0)


def _find_offset(path: Path, time_ns: int, start: int) -> int:
    """Return the offset of the first line at or after a time, searching from offset `start`."""
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            stamp = line.partition(b" ")[0].decode(errors="replace")
            if not line.endswith(b"\n") or parse_rfc3339_ns(stamp) >= time_ns:
                break
            start += len(line)
    return start
