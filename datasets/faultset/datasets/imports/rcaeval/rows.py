"""RCAEval's log lines and spans as rows of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.core.json_text import canonical_json
from faultset.datasets.format.schemas import LOGS, SPANS, TIME
from faultset.datasets.imports.columns import (
    absent,
    constant,
    epoch_ns,
    in_window,
    numbers,
    read_csv,
    read_parquet,
    renamed,
    without_repeats,
    words_of,
)
from faultset.datasets.imports.rcaeval.names import same_services
from faultset.datasets.imports.spans import kinds_and_peers
from faultset.datasets.status_codes import parse_status_code

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

_LOG_COLUMNS = ("timestamp", "container_name", "message", "level")
_LOG_TEXT = ("container_name", "message", "level", "time", "req_path", "error", "log_template")
_SPAN_COLUMNS = (
    "traceID", "spanID", "serviceName", "methodName", "operationName", "startTime", "startTimeMillis",
    "duration", "statusCode", "parentSpanID",
)  # fmt: skip
_SPAN_TEXT = ("traceID", "spanID", "serviceName", "methodName", "operationName", "statusCode", "parentSpanID", "time")
_LEVELS = {
    "warn": "warning",
    "err": "error",
    "critical": "fatal",
    "crit": "fatal",
    "panic": "fatal",
    "severe": "error",
    "information": "info",
    "notice": "info",
}
_KNOWN_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")


def log_rows(path: Path, services: Sequence[str], start_ns: int, end_ns: int) -> pa.Table:
    """Return the log lines of a case inside the view; the magnitude of `timestamp` tells its unit."""
    table = _read(path, _LOG_COLUMNS, _LOG_TEXT, newlines=True)
    table = _timed(table, "timestamp", path)
    rows = len(table)
    containers = words_of(_text(table, "container_name", rows, ""))
    found = same_services(_distinct(containers), services)
    logs = pa.table(
        {
            "time": table["at"],
            "service": renamed(containers, found),
            "pod": containers,
            "container": containers,
            "level": renamed(_text(table, "level", rows, None), _level_names(table)),
            "message": _text(table, "message", rows, ""),
            "trace_id": pa.nulls(rows, pa.string()),
            "span_id": pa.nulls(rows, pa.string()),
        }
    )
    return in_window(logs, "time", start_ns, end_ns).select([name for name in LOGS.names if name != "episode"])


def span_rows(path: Path, services: Sequence[str], start_ns: int, end_ns: int) -> pa.Table:
    """Return the spans of a case that began inside the view, each once; durations are microseconds."""
    table = _read(path, _SPAN_COLUMNS, _SPAN_TEXT)
    clock = "startTime" if "startTime" in table.column_names else "startTimeMillis"
    table = _timed(table, clock, path)
    for name in ("traceID", "spanID"):
        if name in table.column_names:
            table = table.filter(pc.is_valid(table[name]))
    table = without_repeats(table, ("traceID", "spanID"))
    rows = len(table)
    reported = words_of(_text(table, "serviceName", rows, ""))
    service = renamed(reported, same_services(_distinct(reported), services))
    parents = _text(table, "parentSpanID", rows, None).cast(pa.string())
    parents = pc.if_else(pc.equal(parents, ""), pa.scalar(None, pa.string()), parents)
    kind, peer = kinds_and_peers(table["spanID"], parents, service)
    method = _text(table, "methodName", rows, None)
    operation = pc.coalesce(_text(table, "operationName", rows, None).cast(pa.string()), method.cast(pa.string()))
    status, code = _status(_text(table, "statusCode", rows, None))
    spans = pa.table(
        {
            "time": table["at"],
            "trace_id": table["traceID"].cast(pa.string()),
            "span_id": table["spanID"].cast(pa.string()),
            "parent_span_id": parents,
            "service": service,
            "reported_service": reported,
            "peer_service": peer,
            "pod": absent(rows),
            "operation": pc.fill_null(operation, ""),
            "kind": kind,
            "duration_ns": _durations(table, rows, path),
            "status": status,
            "status_code": code,
            "attributes": _attributes(method),
        }
    )
    return in_window(spans, "time", start_ns, end_ns).select([name for name in SPANS.names if name != "episode"])


def _read(path: Path, columns: Sequence[str], text: Sequence[str], *, newlines: bool = False) -> pa.Table:
    if path.suffix == ".parquet":
        return read_parquet(path, columns)
    return read_csv(path, columns=columns, text=text, newlines=newlines)


def _timed(table: pa.Table, clock: str, path: Path) -> pa.Table:
    """Add the column `at`; rows without a time are left out."""
    if clock not in table.column_names or not len(table):
        return table.slice(0, 0).append_column("at", pa.array([], TIME))
    table = table.filter(pc.is_valid(table[clock]))
    column = table[clock]
    if pa.types.is_timestamp(column.type):
        return table.append_column("at", column.cast(pa.timestamp("ns", column.type.tz or "UTC")).cast(TIME))
    if pa.types.is_integer(column.type):
        stamps = epoch_ns(column.to_numpy())
    else:
        stamps = epoch_ns(numbers(column, origin=f"column {clock} of {path}"))
    return table.append_column("at", pa.array(stamps, pa.int64()).cast(TIME))


def _text(table: pa.Table, name: str, rows: int, missing: str | None) -> pa.ChunkedArray:
    """Return a text column; a file without it has it empty."""
    if name in table.column_names:
        column = table[name]
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        return column if missing is None else pc.fill_null(column, missing)
    return pa.chunked_array([absent(rows) if missing is None else constant(missing, rows)])


def _distinct(column: pa.ChunkedArray) -> list[str]:
    return [word for word in pc.unique(column.cast(pa.string())).to_pylist() if word is not None]


def _level_names(table: pa.Table) -> dict[str, str | None]:
    if "level" not in table.column_names:
        return {}
    names: dict[str, str | None] = {}
    for word in _distinct(table["level"]):
        plain = word.strip().lower()
        plain = _LEVELS.get(plain, plain)
        names[word] = plain if plain in _KNOWN_LEVELS else None
    return names


def _durations(table: pa.Table, rows: int, path: Path) -> pa.Array:
    if "duration" not in table.column_names:
        return pa.array(np.zeros(rows, dtype=np.int64))
    micros = numbers(table["duration"], origin=f"column duration of {path}")
    return pa.array(np.round(np.nan_to_num(micros) * 1_000).astype(np.int64))


def _status(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return status and code; a code is one of gRPC, as a number or a name, or one of HTTP."""
    status: dict[str, str | None] = {}
    codes: dict[str, str | None] = {}
    for word in _distinct(column):
        plain = word.strip().lower()
        number = None if plain == "ok" else parse_status_code(plain)
        codes[word] = str(number) if number is not None else None
        if number is not None:
            status[word] = "ok" if number == 0 or 100 <= number < 400 else "error"
        else:
            status[word] = plain if plain in ("ok", "error") else "unset"
    told = pc.fill_null(renamed(column, status).cast(pa.string()), "unset")
    return told, renamed(column, codes).cast(pa.string()).cast(pa.int32())


def _attributes(method: pa.ChunkedArray) -> pa.ChunkedArray:
    texts: dict[str, str | None] = {word: canonical_json({"method": word}) for word in _distinct(method)}
    return pc.fill_null(renamed(method, texts).cast(pa.string()), "{}")
