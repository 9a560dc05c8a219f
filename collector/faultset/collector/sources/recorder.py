"""Start, read and close the added sources of an episode, and record failures in one sentence each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from faultset.collector.sources.contract import AddedSource, ObjectReader, SourceTarget
from faultset.collector.sources.registry import SourceSpec
from faultset.core.errors import in_one_sentence
from faultset.datasets.format.schemas import time_column

TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SourceRows:
    """The rows of one source in a window; empty with a reason if it failed."""

    spec: SourceSpec
    rows: pa.Table
    interval_s: float | None
    failure: str = ""


class SourceRecorder:
    """Runs the added sources of one episode; a failing source does not affect the episode or other sources.

    Parameters
    ----------
    folder
        Parent of the sources' scratch folders.
    timeout_s
        Time limit for starting, reading and closing a source.
    """

    def __init__(self, specs: Sequence[SourceSpec], folder: Path, *, timeout_s: float = TIMEOUT_S):
        self._specs, self._folder, self._timeout_s = tuple(specs), folder, timeout_s
        self._running: dict[str, AddedSource] = {}
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> dict[str, str]:
        """Return the failed sources by name, with the reason."""
        return dict(self._failures)

    def start(self, platform: ObjectReader, interval_s: float) -> None:
        """Start all sources."""
        for spec in self._specs:
            folder = self._folder / spec.name
            folder.mkdir(parents=True, exist_ok=True)
            target = SourceTarget(platform=platform, schema=spec.schema, interval_s=interval_s, folder=folder)

            def begin(spec: SourceSpec = spec, target: SourceTarget = target) -> None:
                source = spec.source_class(target)
                self._running[spec.name] = source
                source.start()

            self._try(spec, "start", begin)

    def read(self, start_ns: int, end_ns: int) -> list[SourceRows]:
        """Return the rows of every source in `[start_ns, end_ns)`."""
        return [self._read(spec, start_ns, end_ns) for spec in self._specs]

    def close(self) -> None:
        """Close all sources; may be called twice."""
        while self._running:
            name, source = self._running.popitem()
            try:
                _run_with_timeout(self._timeout_s, source.close)
            except (Exception, SystemExit) as error:  # harmless: its rows have been read
                _log.warning("the source %s could not be closed: %s", name, in_one_sentence(error))

    def _read(self, spec: SourceSpec, start_ns: int, end_ns: int) -> SourceRows:
        rows, interval_s, source = spec.schema.empty_table(), None, self._running.get(spec.name)
        if source is not None and spec.name not in self._failures:
            result = self._try(
                spec, "be read", lambda: (read_rows(spec, source, start_ns, end_ns), _read_interval_s(source))
            )
            rows, interval_s = result or (rows, interval_s)
        return SourceRows(spec=spec, rows=rows, interval_s=interval_s, failure=self._failures.get(spec.name, ""))

    def _try(self, spec: SourceSpec, action: str, call: Callable[[], T]) -> T | None:
        try:
            return _run_with_timeout(self._timeout_s, call)
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            self._failures[spec.name] = f"the source {spec.origin} could not {action}: {in_one_sentence(error)}"
            _log.warning("%s", self._failures[spec.name])
            return None


def read_rows(spec: SourceSpec, source: AddedSource, start_ns: int, end_ns: int) -> pa.Table:
    """Read the rows of a window; raise ValueError if they contradict the source's declaration."""
    batches = list(source.snapshot(start_ns, end_ns))
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(spec.schema):
            actual = batch.schema if isinstance(batch, pa.RecordBatch) else type(batch).__name__
            expected = _describe_schema(spec.schema)
            raise ValueError(f"snapshot must yield record batches with {expected}, got {_describe_schema(actual)}")
    rows = pa.Table.from_batches(batches, schema=spec.schema)
    for field in spec.schema:
        if not field.nullable and rows[field.name].null_count:
            raise ValueError(f"column {field.name} must not be null, but {rows[field.name].null_count} rows are")
    column = time_column(spec.table)
    times = rows[column].cast(pa.int64()).to_numpy()
    if outside_count := int(((times < start_ns) | (times >= end_ns)).sum()):
        raise ValueError(f"{outside_count} of {len(times)} rows are outside the requested window")
    if spec.table == "metrics":
        declared_names = {role.metric for role in spec.metric_roles}
        allowed_names = {f"{name}{suffix}" for name in declared_names for suffix in ("", "_bucket", "_sum", "_count")}
        if unknown := sorted({*rows["metric"].cast(pa.string()).unique().to_pylist()} - allowed_names):
            raise ValueError(f"the metrics {', '.join(unknown)} are not declared in metric_roles")
    return rows


def _read_interval_s(source: AddedSource) -> float | None:
    interval_s = source.interval_s
    if interval_s is not None and not interval_s > 0:
        raise ValueError(f"interval_s must be None or above 0, got {interval_s!r}")
    return interval_s


def _describe_schema(schema: pa.Schema | str) -> str:
    return schema if isinstance(schema, str) else ", ".join(f"{field.name}: {field.type}" for field in schema)


def _run_with_timeout(timeout_s: float, call: Callable[[], T]) -> T:
    """Run a call with a time limit; raise TimeoutError and abandon its thread if it hangs."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append((call(), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not results:
        raise TimeoutError(f"no response within {timeout_s:g} s")
    value, error = results[0]
    if error is not None:
        raise error
    return value
