"""The added sources of one episode: started, read and closed, with what went wrong in one sentence each."""

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
    """What one source has recorded in a window; no rows, and the reason, when it failed."""

    spec: SourceSpec
    rows: pa.Table
    interval_s: float | None
    failure: str = ""


class SourceRecorder:
    """Runs the added sources of one episode; the failure of one ends neither the episode nor the others.

    Parameters
    ----------
    folder
        Where each source gets a working folder.
    timeout_s
        How long a source may take to start, to be read, and to close.
    """

    def __init__(self, specs: Sequence[SourceSpec], folder: Path, *, timeout_s: float = TIMEOUT_S):
        self._specs, self._folder, self._timeout_s = tuple(specs), folder, timeout_s
        self._running: dict[str, AddedSource] = {}
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> dict[str, str]:
        """Name of each source that failed, with the reason."""
        return dict(self._failures)

    def start(self, platform: ObjectReader, interval_s: float) -> None:
        """Start all sources."""
        for spec in self._specs:
            folder = self._folder / spec.name
            folder.mkdir(parents=True, exist_ok=True)
            target = SourceTarget(platform=platform, schema=spec.schema, interval_s=interval_s, folder=folder)

            def begin(spec: SourceSpec = spec, target: SourceTarget = target) -> None:
                made = spec.make(target)
                self._running[spec.name] = made
                made.start()

            self._tried(spec, "start", begin)

    def read(self, start_ns: int, end_ns: int) -> list[SourceRows]:
        """Return what every source has recorded in `[start_ns, end_ns)`."""
        return [self._read(spec, start_ns, end_ns) for spec in self._specs]

    def close(self) -> None:
        """Close all sources; may be called twice."""
        while self._running:
            name, source = self._running.popitem()
            try:
                _within(self._timeout_s, source.close)
            except (Exception, SystemExit) as error:  # nothing is lost: its rows have been read
                _log.warning("the source %s could not be closed: %s", name, in_one_sentence(error))

    def _read(self, spec: SourceSpec, start_ns: int, end_ns: int) -> SourceRows:
        rows, interval_s, source = spec.schema.empty_table(), None, self._running.get(spec.name)
        if source is not None and spec.name not in self._failures:
            found = self._tried(
                spec, "be read", lambda: (checked_rows(spec, source, start_ns, end_ns), _interval(source))
            )
            rows, interval_s = found or (rows, interval_s)
        return SourceRows(spec=spec, rows=rows, interval_s=interval_s, failure=self._failures.get(spec.name, ""))

    def _tried(self, spec: SourceSpec, what: str, call: Callable[[], T]) -> T | None:
        try:
            return _within(self._timeout_s, call)
        except (Exception, SystemExit) as error:  # whatever a third party's code does
            self._failures[spec.name] = f"the source {spec.origin} could not {what}: {in_one_sentence(error)}"
            _log.warning("%s", self._failures[spec.name])
            return None


def checked_rows(spec: SourceSpec, source: AddedSource, start_ns: int, end_ns: int) -> pa.Table:
    """Return the rows of a window; raise ValueError when they are not what the source declares."""
    batches = list(source.snapshot(start_ns, end_ns))
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(spec.schema):
            found = batch.schema if isinstance(batch, pa.RecordBatch) else type(batch).__name__
            raise ValueError(f"snapshot must yield record batches with {_words(spec.schema)}; found {_words(found)}")
    rows = pa.Table.from_batches(batches, schema=spec.schema)
    for field in spec.schema:
        if not field.nullable and rows[field.name].null_count:
            raise ValueError(f"column {field.name} must not be null, but {rows[field.name].null_count} rows are")
    column = time_column(spec.table)
    times = rows[column].cast(pa.int64()).to_numpy()
    if outside := int(((times < start_ns) | (times >= end_ns)).sum()):
        raise ValueError(f"{outside} of {len(times)} rows are outside of the window that was asked for")
    if spec.table == "metrics":
        declared = {role.metric for role in spec.metric_roles}
        parts = {f"{name}{part}" for name in declared for part in ("", "_bucket", "_sum", "_count")}
        if unknown := sorted({*rows["metric"].cast(pa.string()).unique().to_pylist()} - parts):
            raise ValueError(f"the metrics {', '.join(unknown)} are not declared in metric_roles")
    return rows


def _interval(source: AddedSource) -> float | None:
    interval_s = source.interval_s
    if interval_s is not None and not interval_s > 0:
        raise ValueError(f"interval_s must be None or more than 0, but is {interval_s!r}")
    return interval_s


def _words(schema: pa.Schema | str) -> str:
    return schema if isinstance(schema, str) else ", ".join(f"{field.name}: {field.type}" for field in schema)


def _within(timeout_s: float, call: Callable[[], T]) -> T:
    """Return what a call returns, or raise TimeoutError; a call that hangs is left behind in its thread."""
    done: list[Any] = []

    def run() -> None:
        try:
            done.append((call(), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not done:
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    value, error = done[0]
    if error is not None:
        raise error
    return value
