"""Rows of rcabench's tables, and the roles of its metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from faultset.core.files import canonical_json
from faultset.datasets.format.schemas import TIME
from faultset.datasets.imports.columns import (
    build_table,
    constant,
    drop_repeats,
    encode_codes,
    encode_words,
    filter_window,
    nulls,
    rename_words,
)
from faultset.datasets.imports.formats.rcabench_files import clock_of, stamps_ns
from faultset.datasets.imports.spans import infer_kinds_and_peers
from faultset.datasets.status_codes import read_outcome

SOURCE = "rcabench"

_ROLES = (
    ("k8s.*.cpu_limit", "limits", "1", "gauge", "sum"),
    ("k8s.*.cpu_request", "limits", "1", "gauge", "sum"),
    ("k8s.*.memory_limit", "limits", "By", "gauge", "sum"),
    ("k8s.*.memory_request", "limits", "By", "gauge", "sum"),
    ("*_limit_utilization", "saturation", "1", "gauge", "max"),
    ("*_request_utilization", "saturation", "1", "gauge", "max"),
    ("*.cpu.node.utilization", "cpu", "1", "gauge", "sum"),
    ("k8s.*.cpu.*", "cpu", "1", "gauge", "sum"),
    ("container.cpu.*", "cpu", "1", "gauge", "sum"),
    ("k8s.*.memory.*", "memory", "By", "gauge", "sum"),
    ("container.memory.*", "memory", "By", "gauge", "sum"),
    ("k8s.*.network.*", "network", "By", "gauge", "sum"),
    ("k8s.*.filesystem.*", "disk", "By", "gauge", "sum"),
    ("container.filesystem.*", "disk", "By", "gauge", "sum"),
    ("k8s.container.restarts", "restarts", "1", "gauge", "sum"),
    ("k8s.container.ready", "state", "1", "gauge", "sum"),
    ("k8s.pod.phase", "state", "1", "gauge", "max"),
    ("k8s.deployment.*", "state", "1", "gauge", "sum"),
    ("k8s.replicaset.*", "state", "1", "gauge", "sum"),
    ("k8s.statefulset.*", "state", "1", "gauge", "sum"),
    ("http.server.request.duration", "latency", "s", "histogram", "sum"),
    ("http.client.request.duration", "latency", "s", "histogram", "sum"),
    ("hubble_http_request_duration_seconds", "latency", "s", "histogram", "sum"),
    ("hubble_http_request_duration_*", "latency", "s", "gauge", "max"),
    ("hubble_http_requests_total", "traffic", "1", "counter", "sum"),
    ("hubble_*", "network", "1", "gauge", "sum"),
    ("jvm.cpu.*", "cpu", "1", "gauge", "sum"),
    ("jvm.system.cpu.*", "cpu", "1", "gauge", "mean"),
    ("jvm.memory.*", "memory", "By", "gauge", "sum"),
    ("jvm.buffer.memory.*", "memory", "By", "gauge", "sum"),
    ("jvm.gc.duration", "saturation", "s", "histogram", "sum"),
    ("jvm.thread.*", "threads", "1", "gauge", "sum"),
    ("db.client.connections.*", "saturation", "1", "gauge", "sum"),
)

METRIC_ROLES: tuple[Mapping[str, str], ...] = tuple(
    {"source": SOURCE, "metric": metric, "role": role, "unit": unit, "kind": kind, "combine": combine}
    for metric, role, unit, kind, combine in _ROLES
)


pc: Any = pyarrow.compute  # type checkers do not see its functions

RAW_NAMES = {
    "MetricName": "metric", "Value": "value", "ServiceName": "service_name", "Count": "count", "Sum": "sum",
    "Min": "min", "Max": "max", "TraceId": "trace_id", "SpanId": "span_id", "ParentSpanId": "parent_span_id",
    "SpanName": "span_name", "SpanKind": "attr.span_kind", "StatusCode": "attr.status_code", "Duration": "duration",
    "SeverityText": "level", "Body": "message",
}  # fmt: skip
"""Column of a raw file -> the same column of a converted file."""
_JSON_COLUMNS = ("ResourceAttributes", "Attributes", "SpanAttributes")
_POD, _CONTAINER = "k8s.pod.name", "k8s.container.name"
_OWNERS = ("k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name")
_HIDDEN = {_POD, _CONTAINER, "k8s.namespace.name", "service.name", "service.namespace", "k8s.pod.uid", "container.id"}
_LEVELS = {"warn": "warning", "critical": "fatal", "panic": "fatal", "severe": "error"}
_KNOWN_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
_KINDS = ("server", "client", "internal", "producer", "consumer")
_MIN_GROWING_SHARE = 0.95

Words = list[str | None]
Codes = npt.NDArray[np.int32]


class _Attributes:
    """Attributes of rows, stored once per distinct combination."""

    def __init__(self, table: pa.Table) -> None:
        columns = [name for name in table.column_names if name in _JSON_COLUMNS or name.startswith("attr.")]
        codes = np.zeros(len(table), dtype=np.int64)
        cells: list[tuple[npt.NDArray[np.int64], Words]] = []
        for name in columns:
            column, words = _codes_and_words(table[name])
            cells.append((column, words))
            codes = np.unique(codes * (len(words) + 1) + column, return_inverse=True)[1].astype(np.int64)
        count = int(codes.max()) + 1 if len(codes) else 0
        first = np.zeros(count, dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        self.codes = codes.astype(np.int32)
        self.maps: list[Mapping[str, Any]] = [
            _merge(columns, [words[column[row]] for column, words in cells]) for row in first
        ]

    def column(self, *names: str) -> pa.DictionaryArray:
        """Return the first of the named attributes that each row has, as text."""
        texts: Words = []
        for attributes in self.maps:
            value = next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)
            texts.append(None if value is None else str(value))
        return encode_codes(texts, self.codes)

    def labels(self, hidden: set[str]) -> pa.DictionaryArray:
        """Return the attributes of each row that are not hidden, as canonical JSON."""
        texts: Words = [
            canonical_json({name: value for name, value in row.items() if name not in hidden and value is not None})
            for row in self.maps
        ]
        return encode_codes(texts, self.codes)


def sample_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int, *, sums: bool) -> pa.Table:
    """Return the rows of gauges, or of sums; sums that hardly ever fall are counters."""
    table = _prepare(tables, start_ns, end_ns)
    table = table.filter(pc.and_kleene(pc.is_valid(table["value"]), pc.is_finite(table["value"].cast(pa.float64()))))
    attributes = _Attributes(table)
    values = table["value"].cast(pa.float64())
    rows = _metric_table(table, attributes, table["metric"], values)
    return _set_kind_of_growing(rows, "counter") if sums else rows


def histogram_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> Iterator[pa.Table]:
    """Yield the count, sum, min and max of histograms without buckets; counts and sums that often fall are gauges."""
    table = _prepare(tables, start_ns, end_ns)
    attributes = _Attributes(table)
    for statistic in ("count", "sum", "min", "max"):
        if statistic not in table.column_names:
            continue
        values = table[statistic].cast(pa.float64())
        finite = pc.fill_null(pc.is_finite(values), False)
        names = pc.binary_join_element_wise(table["metric"].cast(pa.string()), statistic, "_")
        rows = _metric_table(table, attributes, names, pc.fill_null(values, 0.0)).filter(finite)
        yield _set_kind_of_growing(rows, statistic) if statistic in ("count", "sum") else rows


def _set_kind_of_growing(rows: pa.Table, kind: str) -> pa.Table:
    """Set the kind of metrics that hardly ever fall (see `_find_growing`); other metrics are gauges."""
    if not len(rows):
        return rows
    growing = _find_growing(rows)
    codes, words = _codes_and_words(rows["metric"])
    kinds: Words = [kind if name in growing else "gauge" for name in words if name is not None]
    return rows.set_column(rows.column_names.index("kind"), "kind", encode_codes(kinds, codes.astype(np.int32)))


def span_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> pa.Table:
    """Return the distinct spans that began inside the view."""
    table = drop_repeats(_prepare(tables, start_ns, end_ns), ("trace_id", "span_id"))
    rows = len(table)
    attributes = _Attributes(table)
    service = encode_words(_get_text(table, "service_name", rows))
    parents = _empty_to_null(_get_text(table, "parent_span_id", rows))
    inferred, peer = infer_kinds_and_peers(table["span_id"].cast(pa.string()), parents, service)
    kind = attributes.column("span_kind")
    names = {word: _shorten(word, _KINDS) for word in _words(kind)}
    kind = pc.coalesce(rename_words(kind, names).cast(pa.string()), inferred.cast(pa.string()))
    outcomes = [
        read_outcome(_shorten(str(row.get("status_code", "")), ("ok", "error")) or "unset", row)
        for row in attributes.maps
    ]
    attributes.maps = [outcome.attributes for outcome in outcomes]
    return build_table(
        "spans",
        {
            "time": table["at"],
            "trace_id": pc.fill_null(_get_text(table, "trace_id", rows), ""),
            "span_id": pc.fill_null(_get_text(table, "span_id", rows), ""),
            "parent_span_id": parents,
            "service": service,
            "reported_service": pc.fill_null(service.cast(pa.string()), ""),
            "peer_service": peer,
            "pod": attributes.column(_POD),
            "operation": pc.fill_null(_get_text(table, "span_name", rows), ""),
            "kind": kind,
            "duration_ns": table["duration"].cast(pa.int64()),
            "status": encode_codes([outcome.status for outcome in outcomes], attributes.codes),
            "status_code": pa.array([outcome.status_code for outcome in outcomes], pa.int32()).take(
                pa.array(attributes.codes)
            ),
            "attributes": attributes.labels({*_HIDDEN, "span_kind", "status_code"}).cast(pa.string()),
        },
    )


def log_rows(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> pa.Table:
    """Return the log lines inside the view."""
    table = _prepare(tables, start_ns, end_ns)
    rows = len(table)
    attributes = _Attributes(table.drop_columns([name for name in table.column_names if "template" in name]))
    service = encode_words(_get_text(table, "service_name", rows))
    level = _get_text(table, "level", rows)
    names = {word: _shorten(_LEVELS.get(word.lower(), word), _KNOWN_LEVELS) for word in _words(level)}
    service_name = pc.fill_null(service.cast(pa.string()), "")
    return build_table(
        "logs",
        {
            "time": table["at"],
            "service": service,
            "pod": pc.coalesce(attributes.column(_POD).cast(pa.string()), service_name),
            "container": pc.coalesce(attributes.column(_CONTAINER).cast(pa.string()), service_name),
            "level": rename_words(level, names),
            "message": pc.fill_null(_get_text(table, "message", rows), ""),
            "trace_id": _empty_to_null(_get_text(table, "trace_id", rows)),
            "span_id": _empty_to_null(_get_text(table, "span_id", rows)),
        },
    )


def _prepare(tables: Sequence[pa.Table], start_ns: int, end_ns: int) -> pa.Table:
    """Join the rows of both windows under their converted names, with the time as `at`."""
    pieces = []
    for table in tables:
        clock = clock_of(table.column_names)
        if clock is None:
            continue
        raw = "ServiceName" in table.column_names or "MetricName" in table.column_names
        dropped = [name for name in table.column_names if raw and name in ("TimestampTime", "LogAttributes")]
        at = pa.chunked_array([chunk.cast(TIME) for chunk in stamps_ns(table[clock]).chunks], TIME)
        columns = table.drop_columns([clock, *dropped])
        names = [RAW_NAMES.get(name, name) for name in columns.column_names] if raw else columns.column_names
        pieces.append(filter_window(columns.rename_columns(names).append_column("at", at), "at", start_ns, end_ns))
    return pa.concat_tables(pieces, promote_options="permissive")


def _metric_table(
    table: pa.Table, attributes: _Attributes, names: pa.ChunkedArray, values: pa.ChunkedArray
) -> pa.Table:
    rows = len(table)
    owner = attributes.column(*_OWNERS).cast(pa.string())
    return build_table(
        "metrics",
        {
            "time": table["at"],
            "service": pc.coalesce(_empty_to_null(_get_text(table, "service_name", rows)), owner),
            "pod": attributes.column(_POD) if rows else nulls(0),
            "container": attributes.column(_CONTAINER) if rows else nulls(0),
            "metric": encode_words(names),
            "labels": attributes.labels(_HIDDEN),
            "kind": constant("gauge", rows),
            "value": values,
        },
    )


def _find_growing(rows: pa.Table) -> set[str]:
    """Return the metrics whose series grow and hardly ever fall, and those with the suffix `_total`."""
    series = np.zeros(len(rows), dtype=np.int64)
    for name in ("service", "pod", "container", "labels", "metric"):
        codes, words = _codes_and_words(rows[name])
        series = np.unique(series * (len(words) + 1) + codes, return_inverse=True)[1].astype(np.int64)
    order = np.lexsort([rows["time"].cast(pa.int64()).to_numpy(), series])
    metric, words = _codes_and_words(rows["metric"])
    steps = np.diff(rows["value"].to_numpy()[order])
    inside = np.diff(series[order]) == 0
    owner = metric[order][1:][inside]
    steps = steps[inside]
    count = len(words)
    rises = np.bincount(owner[steps > 0], minlength=count)
    falls = np.bincount(owner[steps < 0], minlength=count)
    totals = np.bincount(owner, minlength=count)
    return {
        word
        for word, up, down, total in zip(words, rises, falls, totals, strict=True)
        if word is not None and (word.endswith("_total") or (up and down <= (1 - _MIN_GROWING_SHARE) * total))
    }


def _codes_and_words(column: pa.ChunkedArray | pa.Array) -> tuple[npt.NDArray[np.int64], Words]:
    """Return a code per row and the word of each code; null is the last word."""
    encoded = encode_words(column).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else nulls(0)
    words: Words = [*encoded.dictionary.to_pylist(), None]
    return encoded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False).astype(np.int64), words


def _words(column: pa.ChunkedArray | pa.Array) -> list[str]:
    return [word for word in _codes_and_words(column)[1] if word is not None]


def _merge(columns: Sequence[str], cells: Sequence[str | None]) -> Mapping[str, Any]:
    attributes: dict[str, Any] = {}
    for name, cell in zip(columns, cells, strict=True):
        if cell is None:
            continue
        if name in _JSON_COLUMNS:
            try:
                content = json.loads(cell)
            except ValueError:
                content = None
            attributes |= content if isinstance(content, dict) else {name: cell}
        else:
            attributes[name.removeprefix("attr.")] = cell
    return attributes


def _get_text(table: pa.Table, name: str, rows: int) -> pa.ChunkedArray:
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(rows, pa.string())])
    return table[name].cast(pa.string())


def _empty_to_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _shorten(word: str, words: Sequence[str]) -> str | None:
    """Return the last component of SPAN_KIND_SERVER or STATUS_CODE_ERROR if it is one of the words."""
    plain = word.strip().lower().rpartition("_")[2]
    return plain if plain in words else None
