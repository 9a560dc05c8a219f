"""Look up added sources, and start, read and close them in an episode; each failure is recorded in one sentence."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from faultset.collector.sources.contract import AddedSource, ObjectReader, SourceTarget
from faultset.core.errors import DataError, UsageError, in_one_sentence
from faultset.core.plugins import load_plugin, load_plugins, plugins, require_class
from faultset.datasets.format.schemas import TABLES, AddedTable, time_column, without_episode
from faultset.datasets.metrics.roles import MetricRole, builtin_catalogue

GROUP = "faultset.sources"
EXTENSIBLE = ("metrics", "spans", "logs", "events")
"""Tables to which a source may add rows; verdicts and health depend on the others."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """An installed source.

    Attributes
    ----------
    origin
        Its name and its distribution.
    summary
        One sentence about its rows.
    added_table
        Its new table; None if it adds rows to an existing one.
    """

    name: str
    origin: str
    summary: str
    source_class: type[AddedSource]
    table: str
    added_table: AddedTable | None
    metric_roles: tuple[MetricRole, ...]

    @property
    def schema(self) -> pa.Schema:
        return without_episode(self.added_table.schema if self.added_table else TABLES[self.table])


def load_source(name: str) -> SourceSpec:
    """Return a source; raise UsageError if it is unknown or its plug-in is unusable."""
    return load_plugin(GROUP, name, kind="source", accept=source_spec)


def load_sources() -> dict[str, SourceSpec]:
    """Return all installed sources by name; warn about unusable ones."""
    return load_plugins(GROUP, source_spec)


def source_spec(name: str, loaded: Any) -> SourceSpec:
    """Build the spec of a source from its class; raise UsageError if the declaration is invalid."""
    require_class(loaded, "table", "interval_s", "start", "snapshot", "close")
    summary = (inspect.getdoc(loaded) or "").partition("\n")[0]
    if not summary.endswith("."):
        raise UsageError("the docstring of its class must start with a sentence on what it records; add one")
    plugin = plugins(GROUP).get(name)
    origin = f"{name} of {plugin.distribution}" if plugin else f"{name} of {loaded.__module__}"
    columns, roles = tuple(getattr(loaded, "columns", ())), tuple(getattr(loaded, "metric_roles", ()))
    table, added = str(loaded.table), None
    if table in TABLES:
        _check_extension(table, columns, roles)
    else:
        try:
            added = AddedTable(name=table, source=origin, meaning=summary, columns=columns)
        except DataError as error:
            raise UsageError(str(error)) from None
    return SourceSpec(
        name=name,
        origin=origin,
        summary=summary,
        source_class=loaded,
        table=table,
        added_table=added,
        metric_roles=roles,
    )


def _check_extension(table: str, columns: tuple[Any, ...], roles: tuple[MetricRole, ...]) -> None:
    if table not in EXTENSIBLE:
        raise UsageError(f"rows cannot be added to {table}; add to {', '.join(EXTENSIBLE)}, or name a new table")
    if columns:
        raise UsageError(f"the columns of {table} are fixed; leave columns out")
    if (table == "metrics") != bool(roles):
        raise UsageError("metric_roles must be declared by sources of metrics, and only by them; add or remove it")
    catalogue = builtin_catalogue()
    if invalid_names := [role.metric for role in roles if "*" in role.metric or catalogue.find(role.metric)]:
        raise UsageError(
            f"the metrics {', '.join(invalid_names)} must have names without * that are not in the built-in catalogue; "
            "rename them"
        )


def check_together(specs: Iterable[SourceSpec]) -> None:
    """Raise UsageError if two sources record the same new table or the same metric."""
    owners: dict[str, str] = {}
    for spec in specs:
        metrics = [f"metric {role.metric}" for role in spec.metric_roles]
        for item in [f"table {spec.table}"] if spec.added_table else metrics:
            other = owners.setdefault(item, spec.name)
            if other != spec.name:
                raise UsageError(f"the sources {other} and {spec.name} both record the {item}; leave one of them out")


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
