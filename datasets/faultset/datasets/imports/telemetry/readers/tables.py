"""Read CSV and Parquet tables: long and wide metrics, spans, logs and events, with columns found by name or mapping."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.printable import brief, first_line, printable
from faultset.datasets.imports.columns import parse_numbers
from faultset.datasets.imports.telemetry.content import Content, transcode
from faultset.datasets.imports.telemetry.identity import NO_SERVICE, Origin, short_name, split_labels
from faultset.datasets.imports.telemetry.mapping import FileRule
from faultset.datasets.imports.telemetry.readers.otlp import add_span
from faultset.datasets.imports.telemetry.readers.prometheus import UNKNOWN
from faultset.datasets.imports.telemetry.rows import ReadingContext, StagedSeries
from faultset.datasets.imports.telemetry.times import parse_time
from faultset.datasets.telemetry_formats.log_lines import read_level
from faultset.datasets.telemetry_formats.otlp_json import read_float, read_id, read_int, read_kind, read_status

_BATCH_ROWS = 20_000
_SYNONYMS: dict[str, str] = {
    "time": "time timestamp @timestamp ts datetime date starttime starttimeunixnano start_time eventtime _time",
    "end": "end endtime end_time endtimeunixnano",
    "service": "service servicename service_name service.name app cmdb_id reported_service process",
    "pod": "pod podname pod_name k8s_pod_name",
    "container": "container containername container_name",
    "metric": "metric metricname metric_name kpi_name kpi __name__ itemname",
    "value": "value val metric_value",
    "kind": "kind spankind span_kind",
    "labels": "labels tags label",
    "message": "message msg body log line content event text",
    "level": "level severity severitytext loglevel lvl",
    "trace_id": "trace_id traceid trace trace.id",
    "span_id": "span_id spanid span.id id",
    "parent_span_id": "parent_span_id parentspanid parentid parent_id parent_span parentspan",
    "operation": "operation operationname operation_name spanname span_name methodname method name",
    "duration_ns": "duration_ns durationnano durationinnanos duration_nano",
    "duration_us": "duration_us duration_micros",
    "duration_ms": "duration_ms durationms elapsedtime elapsed_ms",
    "duration": "duration elapsed latency",
    "status": "status statuscode_name otel_status_code",
    "status_code": "status_code statuscode http_status_code",
    "attributes": "attributes spanattributes",
    "peer_service": "peer_service peerservice",
    "reported_service": "reported_service",
    "reason": "reason",
    "type": "type",
    "name": "name",
    "count": "count",
}
_NAMES = {field: tuple(names.split()) for field, names in _SYNONYMS.items()}
_UNITS_NS = {"duration_ns": 1, "duration_us": 1_000, "duration_ms": 1_000_000, "duration": 1_000}
"""Nanoseconds per unit; a plain `duration` is in microseconds, as in Jaeger and most of its exports."""
_NO_LABELS = "{}"


def column_of(names: Sequence[str], rule: FileRule) -> dict[str, str]:
    """Return the name of the column that contains each field."""
    plain = {_simplify(name): name for name in reversed(names)}
    fields = {
        field: next((plain[_simplify(word)] for word in words if _simplify(word) in plain), "")
        for field, words in _NAMES.items()
    }
    for field, name in rule.columns.items():
        if field not in _NAMES:
            raise DataError(f"the mapping file names the column {field}, which must be one of {', '.join(_NAMES)}")
        if name not in names:
            raise DataError(
                f"the mapping file names the column {name}, but the table has {', '.join(names[:20])}; correct it"
            )
        fields[field] = name
    return {field: name for field, name in fields.items() if name}


def _simplify(name: str) -> str:
    return re.sub(r"[\s_.-]", "", name).lower()


def find_signal(names: Sequence[str], rule: FileRule) -> str:
    """Return the signal of a table: metrics, wide, spans, logs or events; empty if its columns show none."""
    fields = column_of(names, rule)
    if rule.signal and not (rule.signal == "metrics" and "metric" not in fields):
        return rule.signal
    if "time" not in fields:
        return ""
    if {"trace_id", "span_id"} <= fields.keys() and fields.keys() & {"end", *_UNITS_NS}:
        return "spans"
    if {"metric", "value"} <= fields.keys():
        return "metrics"
    if "reason" in fields and "message" in fields:
        return "events"
    if "message" in fields:
        return "logs"
    return "wide" if len(names) > 1 else ""


def find_delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter of a table's first lines; empty for other text."""
    best, best_width = "", 1
    for delimiter in ",\t;|":
        try:
            rows = list(csv.reader(lines[:20], delimiter=delimiter))
        except csv.Error:
            continue
        widths = [len(row) for row in rows if row]
        width = widths[0] if widths else 0
        if width > best_width and widths.count(width) >= 0.6 * len(widths):
            best, best_width = delimiter, width
    return best


def is_table(lines: Sequence[str]) -> bool:
    """Return whether lines are a table with a header: distinct names, none of them a number."""
    delimiter = find_delimiter(lines)
    if not delimiter:
        return False
    header = [name.strip() for name in next(csv.reader(lines[:1], delimiter=delimiter))]
    names = [name for name in header if name]
    has_values = any(read_float(name) is not None or parse_time(name) is not None for name in names)
    return len(set(names)) == len(names) >= len(header) - 1 and not has_values


def read_csv(content: Content, stream: IO[bytes], context: ReadingContext, rule: FileRule) -> None:
    """Read a CSV file in blocks."""
    lines = content.head.decode("utf-8", "replace").splitlines()
    delimiter = find_delimiter(lines if content.is_whole else lines[:-1]) or ","
    header = [name.strip() for name in next(csv.reader(lines[:1], delimiter=delimiter))]
    names = [name or f"column {number}" for number, name in enumerate(header)]

    def skip(row: Any) -> str:
        context.rows.drop(f"has {row.actual_columns} columns instead of {row.expected_columns}")
        return "skip"

    try:
        reader = pacsv.open_csv(
            transcode(stream, "utf-8"),
            pacsv.ReadOptions(block_size=8 << 20, column_names=names, skip_rows=1, use_threads=False),
            pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty" in str(error):
            raise DataError(f"{content.name} is a table without rows; leave it out") from None
        raise
    read = table_reader(names, context, rule, content.name)
    for batch in reader:
        read(batch)


def read_parquet(content: Content, context: ReadingContext, rule: FileRule) -> None:
    """Read a Parquet file in batches."""
    try:
        with pq.ParquetFile(content.path) as file:
            names = file.schema_arrow.names
            read = table_reader(names, context, rule, content.name)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                read(batch)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise DataError(f"{content.name} is a damaged Parquet file; restore it ({first_line(error)})") from None


def table_reader(names: Sequence[str], context: ReadingContext, rule: FileRule, origin: str) -> Any:
    """Return a function that reads the batches of a table; raise DataError if its columns do not show what it holds."""
    fields = column_of(names, rule)
    signal = find_signal(names, rule)
    if not signal:
        raise DataError(
            f"{origin} is a table whose columns ({brief(printable(', '.join(names[:12])), 120)}) do not show its "
            "content; name them in the mapping file"
        )
    if {"episode", "view_start_ns", "inject_start_ns"} <= set(names):
        raise DataError(
            f"{origin} holds labels exported by faultset, not telemetry; list its incidents in a file for --incidents"
        )

    def read(batch: pa.RecordBatch) -> None:
        if signal == "wide":
            _read_wide(batch, fields, context, rule)
            return
        columns = {field: _read_column(batch, name) for field, name in fields.items()}
        times = [context.parse_time(value) for value in columns["time"]]
        for row in range(batch.num_rows):
            record = {field: column[row] for field, column in columns.items()}
            _READERS[signal](record, times[row], context)

    return read


def _read_column(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns")).cast(pa.int64())
    return column.to_pylist()


def _read_wide(batch: pa.RecordBatch, fields: Mapping[str, str], context: ReadingContext, rule: FileRule) -> None:
    times = [context.parse_time(value) for value in _read_column(batch, fields["time"])]
    timed = np.array([time is not None for time in times])
    context.rows.drop("has no time", int((~timed).sum()))
    times_ns = np.array([time or 0 for time in times], dtype=np.int64)
    separator = rule.separator or "/"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == fields["time"]:
            continue
        values = _parse_column(column)
        if values is None:
            context.rows.note(f"column {name} holds text and is not kept", batch.num_rows)
            continue
        service, mark, metric = name.partition(separator)
        origin = context.origin._replace(service=short_name(service)) if mark and service else context.origin
        series = StagedSeries(origin, short_name(metric if mark else name), _NO_LABELS, rule.kind)
        context.rows.add_samples(series, times_ns[timed], values[timed])


def _parse_column(column: pa.Array) -> np.ndarray | None:
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return np.full(len(column), np.nan) if pa.types.is_null(column.type) else None
    values = parse_numbers(pd.Series(column.to_pandas()))
    filled = len(column) - column.null_count
    return None if filled and np.isnan(values).all() and column.to_pylist().count("NaN") < filled else values


def _parse_labels(value: Any) -> dict[str, Any]:
    """Return labels from JSON, a mapping, or pairs such as `a=b,c=d`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list):
        return dict(pair for pair in value if isinstance(pair, tuple) and len(pair) == 2)
    text = "" if value is None else str(value).strip()
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


def _build_origin(record: Mapping[str, Any], context: ReadingContext) -> Origin:
    fields = {name: short_name(record.get(name)) for name in ("service", "pod", "container")}
    return context.origin._replace(**{name: text for name, text in fields.items() if text})


def _read_sample(record: Mapping[str, Any], time_ns: int | None, context: ReadingContext) -> None:
    value = read_float(record.get("value"))
    metric = short_name(record.get("metric"))
    if value is None or not metric:
        context.rows.drop("has no value" if metric else "has no metric")
        return
    origin, rest = _build_origin(record, context), dict[str, str]()
    if record.get("labels"):
        origin, rest = split_labels(_parse_labels(record["labels"]), origin)
    kind = str(record.get("kind") or UNKNOWN)
    if value == value:
        context.rows.add_sample(StagedSeries(origin, metric, canonical_json(rest), kind), time_ns, value)


def _read_span(record: Mapping[str, Any], time_ns: int | None, context: ReadingContext) -> None:
    unit = next((field for field in _UNITS_NS if record.get(field) is not None), "")
    duration_ns = round((read_float(record[unit]) or 0.0) * _UNITS_NS[unit]) if unit else 0
    if unit == "duration_ns":
        duration_ns = read_int(record[unit]) or 0
    elif not unit:
        duration_ns = (context.parse_time(record.get("end")) or time_ns or 0) - (time_ns or 0)
    attributes = _parse_labels(record.get("attributes"))
    if record.get("peer_service"):
        attributes["peer.service"] = record["peer_service"]
    if record.get("status_code") is not None:
        attributes.setdefault("http.response.status_code", record["status_code"])
    origin = _build_origin(record, context)
    if record.get("reported_service"):
        origin = origin._replace(service=origin.service or NO_SERVICE, reported=short_name(record["reported_service"]))
    add_span(
        context,
        origin,
        time_ns,
        duration_ns,
        ids=(
            read_id(record.get("trace_id"), 16),
            read_id(record.get("span_id"), 8),
            read_id(record.get("parent_span_id"), 8),
        ),
        operation=record.get("operation"),
        kind=read_kind(record.get("kind")),
        outcome=(read_status(record.get("status")), attributes),
    )


def _read_log(record: Mapping[str, Any], time_ns: int | None, context: ReadingContext) -> None:
    context.add_log(
        _build_origin(record, context),
        time_ns,
        str(record.get("message") or ""),
        level=read_level(record.get("level")),
        trace_id=read_id(record.get("trace_id"), 16) or None,
        span_id=read_id(record.get("span_id"), 8) or None,
    )


def _read_event(record: Mapping[str, Any], time_ns: int | None, context: ReadingContext) -> None:
    context.add_event(_build_origin(record, context), time_ns, record)


_READERS = {"metrics": _read_sample, "spans": _read_span, "logs": _read_log, "events": _read_event}
