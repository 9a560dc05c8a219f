"""Logs, events and object states as sources of an episode, on every platform."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from faultset.collector.platforms.observation.logs import parse_record, read_records
from faultset.collector.platforms.observation.objects import ChangeLog, Occurrence
from faultset.core.json_text import replace_surrogates
from faultset.datasets.format.schemas import TABLES

OBJECT_INTERVAL_S = 10.0
_BATCH = 50_000


def _batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([field for field in TABLES[table] if field.name != "episode"])
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    count = 0
    for row in rows:
        for name, column in columns.items():
            column.append(row[name])
        count += 1
        if count % _BATCH == 0:
            yield _batch(schema, columns)
            columns = {name: [] for name in schema.names}
    if count == 0 or count % _BATCH:
        yield _batch(schema, columns)


def _batch(schema: pa.Schema, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        values = [replace_surrogates(value) if isinstance(value, str) else value for value in columns[field.name]]
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, field.type.value_type).dictionary_encode().cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.record_batch(arrays, schema=schema)


class HasOccurrences(Protocol):
    """Who records events as they happen."""

    occurrences: list[Occurrence]


class EventSource:
    """Occurrences of events."""

    table = "events"
    interval_s: float | None = None

    def __init__(self, log: HasOccurrences):
        self._log = log

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the occurrences within `[start_ns, end_ns)`."""
        rows = (
            {
                "time": seen.time_ns,
                "type": seen.type,
                "reason": seen.reason,
                "kind": seen.kind,
                "name": seen.name,
                "service": seen.service,
                "message": seen.message,
                "count": seen.count,
            }
            for seen in list(self._log.occurrences)
            if start_ns <= seen.time_ns < end_ns
        )
        return _batches("events", rows)

    def close(self) -> None:
        """Nothing is held open."""


class ObjectSource:
    """States of objects, every ten seconds from the start of the window and whenever they change."""

    table = "objects"
    interval_s: float | None = OBJECT_INTERVAL_S

    def __init__(self, log: ChangeLog):
        self._log = log

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the states within `[start_ns, end_ns)`."""
        observed = self._log.observe(start_ns, end_ns, int(OBJECT_INTERVAL_S * 1e9))
        rows = (
            {
                "time": seen.time_ns,
                "kind": seen.kind,
                "name": seen.name,
                "service": seen.service,
                "state": seen.state,
                "data": seen.data,
            }
            for seen in observed
        )
        return _batches("objects", rows)

    def close(self) -> None:
        """Nothing is held open."""


class LogSource:
    """Records that containers printed, also those of containers and pods that are gone.

    Parameters
    ----------
    folder
        Holds `<pod>/<container>/<restart>.log` in the format of container runtimes.
    service_of_pod
        Returns the workload that owns a pod, by its name.
    """

    table = "logs"
    interval_s: float | None = None

    def __init__(self, folder: Path, service_of_pod: Callable[[str], str | None]):
        self._folder = folder
        self._service_of_pod = service_of_pod

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the records that began within `[start_ns, end_ns)`, one container after the other."""
        return _batches("logs", self._rows(start_ns, end_ns))

    def close(self) -> None:
        """Nothing is held open."""

    def _rows(self, start_ns: int, end_ns: int) -> Iterator[dict[str, Any]]:
        for path in sorted(self._folder.glob("*/*/*.log"), key=_place):
            if path.stat().st_mtime_ns < start_ns:
                continue
            pod, container = path.parent.parent.name, path.parent.name
            service = self._service_of_pod(pod)
            with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
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


def _place(path: Path) -> tuple[str, int]:
    return str(path.parent), int(re.sub(r"\D", "", path.stem) or 0)
