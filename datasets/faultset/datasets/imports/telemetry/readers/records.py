"""Recognise the format of JSON records by their keys, and pass each record to its reader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from faultset.core.files import canonical_json
from faultset.core.printable import brief, printable
from faultset.datasets.imports.telemetry.identity import read_origin
from faultset.datasets.imports.telemetry.json_units import CONTAINERS
from faultset.datasets.imports.telemetry.readers import kubernetes, logs, otlp, prometheus, traces
from faultset.datasets.imports.telemetry.readers.context import ReadingContext
from faultset.datasets.imports.telemetry.readers.otlp import Point
from faultset.datasets.imports.telemetry.rows import StagedSeries, short_name
from faultset.datasets.telemetry_formats.otlp_json import read_attributes, read_float
from faultset.datasets.telemetry_formats.prometheus import prometheus_name

_MAX_DEPTH = 8
_WATCH_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_BULK = frozenset({"index", "create", "update", "delete"})
_METRIC_DOCUMENTS = frozenset({"SUM", "GAUGE", "HISTOGRAM", "EXPONENTIAL_HISTOGRAM", "SUMMARY"})
_RESOURCE_KEYS = (
    "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "scopeMetrics", "scope_metrics",
    "instrumentationLibraryMetrics", "scopeLogs", "scope_logs", "instrumentationLibraryLogs",
)  # fmt: skip
_MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""Exceptions of readers for records with fields of wrong types."""
_log = logging.getLogger(__name__)
UNKNOWN_FORM = "has an unknown format"


class RecordReader:
    """Reads JSON records of any known format, and counts the records of each format.

    Parameters
    ----------
    file_stem
        Name of the file without suffixes, for series without a name.
    """

    def __init__(self, context: ReadingContext, file_stem: str) -> None:
        self._context, self._stem = context, file_stem
        self._docker = logs.DockerLog(context)
        self.formats: dict[str, int] = {}

    def read(self, value: Any, depth: int = 0, time_ns: int | None = None) -> None:
        """Read a record, or all records in a list or under the keys of a container."""
        if isinstance(value, list):
            self._read_list(value, depth, time_ns)
        elif not isinstance(value, Mapping):
            self._context.rows.drop("is a plain value, not a record")
        elif not self._read_known(value, depth, time_ns):
            inner = [key for key in CONTAINERS if isinstance(value.get(key), Mapping | list)]
            if not inner or depth >= _MAX_DEPTH:
                self._context.rows.drop(_explain_refusal(value))
            for key in inner if depth < _MAX_DEPTH else ():
                self.read(value[key], depth + 1, time_ns)

    def finish(self) -> None:
        """Read the pending records."""
        self._docker.finish()

    def _read_list(self, value: list[Any], depth: int, time_ns: int | None) -> None:
        if depth >= _MAX_DEPTH:
            self._context.rows.drop("is nested too deeply")
        elif len(value) == 2 and isinstance(value[0], int | float) and isinstance(value[1], Mapping):
            self._count("Fluent Bit records")
            self.read(value[1], depth + 1, self._context.parse_time(value[0]))
        elif len(value) == 2 and _is_label_pairs(labels := value[0]) and isinstance(value[1], list):
            self._count("Prometheus series")
            prometheus.add_pairs(self._context, dict(cast(Any, labels)), value[1])
        else:
            for item in value:
                self.read(item, depth + 1, time_ns)

    def _count(self, name: str) -> None:
        self.formats[name] = self.formats.get(name, 0) + 1

    def _read_known(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> bool:
        for name, matches, read in _SHAPES:
            if matches(value):
                self._count(name)
                try:
                    read(self, value, depth, time_ns)
                except _MALFORMED as error:
                    _log.debug("%s", name, exc_info=True)
                    self._context.rows.drop(f"is malformed ({type(error).__name__})")
                return True
        return False

    def _read_otlp(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        otlp.read_resource(value, self._context)

    def _read_jaeger_trace(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        traces.read_jaeger_trace(value, self._context)

    def _read_jaeger_span(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        traces.read_jaeger_span(value, self._context)

    def _read_zipkin(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        traces.read_zipkin_span(value, self._context)

    def _read_span(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        traces.read_span_document(value, self._context)

    def _read_series(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        prometheus.read_series(value, self._context, self._stem)

    def _read_response(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        """Read a response of Prometheus or Loki."""
        data = value.get("data")
        if value.get("status") == "error":
            reason = brief(printable(str(value.get("error") or "no reason given")), 120)
            self._context.rows.drop(f"is an error response of the server ({reason})")
            return
        for warning in value.get("warnings") or ():
            self._context.rows.note(f"the server warned: {brief(printable(str(warning)), 120)}")
        if isinstance(data, Mapping) and "resultType" in data:
            result = data.get("result")
            if data["resultType"] in ("scalar", "string"):
                self._context.rows.drop(f"is a {data['resultType']}, not a series")
            elif isinstance(result, list):
                self.read(result, depth + 1, time_ns)
        elif isinstance(data, Mapping) and prometheus.read_metadata(data, self._context):
            return
        elif isinstance(data, list) and data and all(isinstance(item, str) for item in data):
            self._context.rows.drop("lists names without samples; save the response to a query")
        elif isinstance(data, list) and data and isinstance(data[0], Mapping) and "__name__" in data[0]:
            self._context.rows.drop("lists series without samples; save the response to a query", len(data))
        elif data:
            self.read(data, depth + 1, time_ns)

    def _read_loki(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        logs.read_loki_stream(value, self._context)

    def _read_docker(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        record = value if time_ns is None or "time" in value else {**value, "time": time_ns}
        self._docker.read(record)

    def _read_source(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        self.read(value["_source"], depth + 1, time_ns)

    def _read_bulk(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        """Skip the action line of a bulk request, which names the index of the next document."""

    def _read_watch(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        if value["type"] == "DELETED":
            self._context.rows.drop("reports the deletion of an object")
        else:
            self.read(value["object"], depth + 1, time_ns)

    def _read_event(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        kubernetes.read_event(value, self._context)

    def _read_object_list(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        kind = str(value.get("kind")).removesuffix("List")
        for item in value["items"]:
            if isinstance(item, Mapping) and kind and "kind" not in item:
                item = {**item, "kind": kind, "apiVersion": value.get("apiVersion")}
            self.read(item, depth + 1, time_ns)

    def _read_object(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        kubernetes.read_object(value, self._context, time_ns)

    def _read_metric_document(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        _read_metric_document(value, self._context)

    def _read_beat(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        _read_beat(value, self._context)

    def _read_log(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> None:
        logs.read_json_log(logs.flatten(value), self._context, time_ns)


def _is_label_pairs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in value
        )
    )


def _explain_refusal(value: Mapping[str, Any]) -> str:
    """Return why a record of an unknown format cannot be read."""
    keys = value.keys()
    if keys & {"spanSet", "spanSets", "rootTraceName"}:
        return "is a result of a Tempo search, which has only parts of traces; save each trace by its id"
    if "aggregations" in keys or "aggs" in keys:
        return "contains aggregations instead of records; save the documents themselves"
    if "mappings" in keys or "settings" in keys:
        return "describes an index and contains no records"
    if {"sourceNode", "targetNode"} <= keys:
        return "is an edge of a service map; import spans instead, which show each call"
    return UNKNOWN_FORM


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda value: all(name in value for name in names)


def _is_jaeger_trace(value: Mapping[str, Any]) -> bool:
    spans = value.get("spans")
    if not isinstance(spans, list):
        return False
    first = next((span for span in spans if isinstance(span, Mapping)), {})
    return "processes" in value or "operationName" in first or "processMap" in value


def _is_zipkin(value: Mapping[str, Any]) -> bool:
    return _has("traceId", "id")(value) and "spanId" not in value


def _is_metric_document(value: Mapping[str, Any]) -> bool:
    return str(value.get("kind")).upper() in _METRIC_DOCUMENTS and "name" in value


def _is_log(value: Mapping[str, Any]) -> bool:
    return logs.is_log_record(logs.flatten(value))


def _read_metric_document(value: Mapping[str, Any], context: ReadingContext) -> None:
    """Read a metric as Data Prepper stores it in an index."""
    flat = logs.flatten(value)
    labels = {
        name.removeprefix("metric.attributes.").replace("@", "."): item
        for name, item in read_attributes(value.get("attributes")).items()
        if name.startswith("metric.attributes.")
    }
    monotonic = bool(value.get("isMonotonic"))
    delta = "delta-" if str(value.get("aggregationTemporality")).endswith("DELTA") else ""
    kind = str(value["kind"]).upper()
    counts = kind == "SUM" and monotonic
    name = prometheus_name(str(value["name"]), str(value.get("unit") or ""), "counter" if counts else kind.lower())
    origin = read_origin(
        logs.flatten({"resource": flat}) | read_attributes(flat.get("attributes")) | flat, context.origin
    )
    facts = {key.removeprefix("attributes.resource.attributes."): item for key, item in flat.items()}
    origin = read_origin({key.replace("@", "."): item for key, item in facts.items()}, origin)
    point = Point(
        context, origin, name, {key: str(item) for key, item in labels.items()}, context.parse_time(value.get("time"))
    )
    if kind in ("SUM", "GAUGE"):
        point.add(read_float(value.get("value")), f"{delta}counter" if counts else "gauge")
        return
    for bucket in value.get("buckets") or ():
        context.rows.note("buckets of stored histograms are not kept", 1 if bucket else 0)
    for suffix in ("sum", "count"):
        if value.get(suffix) is not None:
            point.add(read_float(value[suffix]), f"{delta}{suffix}", f"_{suffix}")


def _read_beat(value: Mapping[str, Any], context: ReadingContext) -> None:
    """Read the numbers of a Kubernetes document of Elastic's agents as gauges."""
    flat = logs.flatten(value)
    time_ns = context.parse_time(flat.get("@timestamp"))
    origin = read_origin(flat, context.origin)
    numbers = {
        name: float(number)
        for name, number in flat.items()
        if name.startswith("kubernetes.")
        and isinstance(number, int | float)
        and not name.startswith("kubernetes.labels.")
    }
    if not numbers:
        context.rows.drop("is a document without numbers")
    for name, number in numbers.items():
        metric = short_name(prometheus_name(name, "", "gauge"))
        context.rows.add_sample(StagedSeries(origin, metric, canonical_json({}), "gauge"), time_ns, number)


_Shape = tuple[
    str, Callable[[Mapping[str, Any]], bool], Callable[[RecordReader, Mapping[str, Any], int, "int | None"], None]
]
_SHAPES: tuple[_Shape, ...] = (
    ("OTLP", lambda value: any(name in value for name in _RESOURCE_KEYS), RecordReader._read_otlp),
    ("Jaeger traces", _is_jaeger_trace, RecordReader._read_jaeger_trace),
    ("Jaeger spans", _has("spanID", "operationName"), RecordReader._read_jaeger_span),
    ("Jaeger spans", _has("spanId", "operationName"), RecordReader._read_jaeger_span),
    ("Zipkin spans", _is_zipkin, RecordReader._read_zipkin),
    (
        "Prometheus series",
        lambda value: "metric" in value and bool(value.keys() & {"values", "value", "histograms", "histogram"}),
        RecordReader._read_series,
    ),
    ("Loki streams", _has("stream", "values"), RecordReader._read_loki),
    ("Loki streams", _has("stream", "entries"), RecordReader._read_loki),
    (
        "API response",
        lambda value: isinstance(value.get("status"), str) and bool(value.keys() & {"data", "error"}),
        RecordReader._read_response,
    ),
    ("documents", lambda value: isinstance(value.get("_source"), Mapping), RecordReader._read_source),
    (
        "Kubernetes watch",
        lambda value: value.get("type") in _WATCH_TYPES and isinstance(value.get("object"), Mapping),
        RecordReader._read_watch,
    ),
    ("Kubernetes events", lambda value: ("involvedObject" in value or "regarding" in value), RecordReader._read_event),
    (
        "Kubernetes list",
        lambda value: str(value.get("kind")).endswith("List") and isinstance(value.get("items"), list),
        RecordReader._read_object_list,
    ),
    (
        "Kubernetes objects",
        lambda value: (
            isinstance(value.get("kind"), str) and isinstance(value.get("metadata"), Mapping) and "apiVersion" in value
        ),
        RecordReader._read_object,
    ),
    ("metric documents", _is_metric_document, RecordReader._read_metric_document),
    ("span documents", _has("traceId", "spanId", "startTime"), RecordReader._read_span),
    (
        "container logs",
        lambda value: isinstance(value.get("log"), str) and not isinstance(value.get("message"), str),
        RecordReader._read_docker,
    ),
    ("JSON logs", _is_log, RecordReader._read_log),
    (
        "Elastic Kubernetes documents",
        lambda value: isinstance(value.get("kubernetes"), Mapping),
        RecordReader._read_beat,
    ),
    ("bulk requests", lambda value: len(value) == 1 and bool(value.keys() & _BULK), RecordReader._read_bulk),
)  # fmt: skip
"""Name of a format, whether a record has it, and the reader of such records; the first match applies."""
