"""Recognise the format of JSON records by their keys, and pass each record to its reader.

The readers of Kubernetes objects and events, metric documents and Elastic's documents are in this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from faultset.core.files import canonical_json
from faultset.core.printable import brief, printable
from faultset.datasets.imports.telemetry.content import CONTAINERS
from faultset.datasets.imports.telemetry.identity import Origin, read_origin, short_name
from faultset.datasets.imports.telemetry.readers import logs, otlp, prometheus, traces
from faultset.datasets.imports.telemetry.readers.otlp import Point
from faultset.datasets.imports.telemetry.rows import ReadingContext, StagedSeries
from faultset.datasets.telemetry_formats.kubernetes_objects import (
    RECORDED_KINDS,
    event_time,
    is_custom,
    record_state,
    render_texts,
)
from faultset.datasets.telemetry_formats.otlp_json import read_attributes, read_float, read_int
from faultset.datasets.telemetry_formats.prometheus import prometheus_name

_APP_LABELS = ("app.kubernetes.io/name", "app", "k8s-app", "app.kubernetes.io/component", "name")
WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Rollout"})


def read_event(event: Mapping[str, Any], context: ReadingContext) -> None:
    """Read an event of either API version."""
    subject, metadata, series = (
        value if isinstance(value, Mapping) else {}
        for value in (event.get("involvedObject") or event.get("regarding"), event.get("metadata"), event.get("series"))
    )
    origin = Origin(namespace=short_name(subject.get("namespace")))
    if subject.get("kind") in WORKLOADS:
        origin = origin._replace(workload=short_name(subject.get("name")))
    facts = {
        **event,
        "kind": subject.get("kind"),
        "name": short_name(subject.get("name")) or metadata.get("name"),
        "message": event.get("message") or event.get("note"),
        "count": read_int(series.get("count")) or event.get("count") or event.get("deprecatedCount"),
    }
    context.add_event(origin, context.parse_time(event_time(event)), facts)


def read_object(resource: Mapping[str, Any], context: ReadingContext, time_ns: int | None) -> None:
    """Read the state of an object; `time_ns` is the time of the snapshot, or None if unknown."""
    kind = short_name(resource.get("kind"))
    metadata = resource.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        context.rows.drop("is an object without a name")
        return
    if kind == "Secret" or (kind not in RECORDED_KINDS and not is_custom(dict(resource))):
        context.rows.drop(f"is of kind {kind or 'unknown'}, which is not kept")
        return
    name = short_name(metadata["name"])
    labels = metadata.get("labels")
    labels = labels if isinstance(labels, Mapping) else {}
    origin = Origin(
        service=next((short_name(labels[key]) for key in _APP_LABELS if labels.get(key)), ""),
        workload=name if kind in WORKLOADS else _find_owner(metadata),
        pod=name if kind == "Pod" else "",
        namespace=short_name(metadata.get("namespace")),
    )
    try:
        state = record_state(dict(resource), kind)
        data = render_texts(resource) if kind == "ConfigMap" else None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        context.rows.drop(f"is a {kind} without fields that every {kind} has")
        return
    if time_ns is None:
        time_ns = _latest_change(resource, context)
        context.rows.note("the state of the object gets the time of its last recorded change")
    row = {"kind": kind, "name": name, "state": context.rows.redact.hide(state), "data": data}
    context.rows.add("objects", origin, time_ns, row)


def _find_owner(metadata: Mapping[str, Any]) -> str:
    for reference in metadata.get("ownerReferences") or ():
        if isinstance(reference, Mapping) and reference.get("name"):
            name = short_name(reference["name"])
            return name.rpartition("-")[0] if reference.get("kind") == "ReplicaSet" else name
    return ""


def _latest_change(resource: Mapping[str, Any], context: ReadingContext) -> int | None:
    """Return the latest time in an object: that of its creation, its conditions or its managed fields."""
    times: list[int] = []
    pending: list[Any] = [resource.get("metadata"), resource.get("status")]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            for name, item in value.items():
                if isinstance(item, str) and (name.endswith(("Time", "Timestamp", "At")) or name == "time"):
                    time_ns = context.parse_time(item)
                    times += [] if time_ns is None else [time_ns]
                elif isinstance(item, Mapping | list):
                    pending.append(item)
        elif isinstance(value, list):
            pending += value[:1_000]
    return max(times, default=None)


_MAX_DEPTH = 8
_WATCH_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_BULK_ACTIONS = frozenset({"index", "create", "update", "delete"})
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

    Series without a name are named `file_stem`.
    """

    def __init__(self, context: ReadingContext, file_stem: str) -> None:
        self.context, self.stem = context, file_stem
        self.docker = logs.DockerLog(context)
        self.formats: dict[str, int] = {}

    def read(self, value: Any, depth: int = 0, time_ns: int | None = None) -> None:
        """Read a record, or all records in a list or under the keys of a container."""
        rows = self.context.rows
        if isinstance(value, list):
            self._read_list(value, depth, time_ns)
        elif not isinstance(value, Mapping):
            rows.drop("is a plain value, not a record")
        elif not self._read_known(value, depth, time_ns):
            inner = [key for key in CONTAINERS if isinstance(value.get(key), Mapping | list)]
            if not inner or depth >= _MAX_DEPTH:
                rows.drop(_explain_refusal(value))
            for key in inner if depth < _MAX_DEPTH else ():
                self.read(value[key], depth + 1, time_ns)

    def finish(self) -> None:
        """Read the pending records."""
        self.docker.finish()

    def _read_list(self, value: list[Any], depth: int, time_ns: int | None) -> None:
        if depth >= _MAX_DEPTH:
            self.context.rows.drop("is nested too deeply")
        elif len(value) == 2 and isinstance(value[0], int | float) and isinstance(value[1], Mapping):
            self._count("Fluent Bit records")
            self.read(value[1], depth + 1, self.context.parse_time(value[0]))
        elif len(value) == 2 and _is_label_pairs(labels := value[0]) and isinstance(value[1], list):
            self._count("Prometheus series")
            prometheus.add_pairs(self.context, dict(cast(Any, labels)), value[1])
        else:
            for item in value:
                self.read(item, depth + 1, time_ns)

    def _count(self, name: str) -> None:
        self.formats[name] = self.formats.get(name, 0) + 1

    def _read_known(self, value: Mapping[str, Any], depth: int, time_ns: int | None) -> bool:
        for name, matches, read in _FORMATS:
            if matches(value):
                self._count(name)
                try:
                    inner = read(self, value, time_ns)
                    if inner is not None:
                        self.read(inner, depth + 1, time_ns)
                except _MALFORMED as error:
                    _log.debug("%s", name, exc_info=True)
                    self.context.rows.drop(f"is malformed ({type(error).__name__})")
                return True
        return False


def _open_response(reader: RecordReader, value: Mapping[str, Any], time_ns: int | None) -> Any:
    """Return the records in a response of Prometheus or Loki."""
    data, rows = value.get("data"), reader.context.rows
    if value.get("status") == "error":
        rows.drop(f"is an error response of the server ({_quote(value.get('error') or 'no reason given')})")
        return None
    for warning in value.get("warnings") or ():
        rows.note(f"the server warned: {_quote(warning)}")
    if isinstance(data, Mapping) and "resultType" in data:
        if data["resultType"] in ("scalar", "string"):
            rows.drop(f"is a {data['resultType']}, not a series")
            return None
        return data["result"] if isinstance(data.get("result"), list) else None
    if isinstance(data, Mapping) and prometheus.read_metadata(data, reader.context):
        return None
    if isinstance(data, list) and data and all(isinstance(item, str) for item in data):
        rows.drop("lists names without samples; save the response to a query")
    elif isinstance(data, list) and data and isinstance(data[0], Mapping) and "__name__" in data[0]:
        rows.drop("lists series without samples; save the response to a query", len(data))
    else:
        return data or None
    return None


def _quote(text: object) -> str:
    return brief(printable(str(text)), 120)


def _open_watch(reader: RecordReader, value: Mapping[str, Any], time_ns: int | None) -> Any:
    if value["type"] == "DELETED":
        reader.context.rows.drop("reports the deletion of an object")
        return None
    return value["object"]


def _open_list(reader: RecordReader, value: Mapping[str, Any], time_ns: int | None) -> Any:
    kind, version = str(value.get("kind")).removesuffix("List"), value.get("apiVersion")
    return [
        {**item, "kind": kind, "apiVersion": version}
        if isinstance(item, Mapping) and kind and "kind" not in item
        else item
        for item in value["items"]
    ]


def _read_docker(reader: RecordReader, value: Mapping[str, Any], time_ns: int | None) -> None:
    reader.docker.read(value if time_ns is None or "time" in value else {**value, "time": time_ns})


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


def _read_elastic_document(value: Mapping[str, Any], context: ReadingContext) -> None:
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


def _with_context(read: Callable[[Mapping[str, Any], ReadingContext], object]) -> _Read:
    """Return the reader of a format whose records contain no other records."""

    def read_record(reader: RecordReader, value: Mapping[str, Any], time_ns: int | None) -> None:
        read(value, reader.context)

    return read_record


_Read = Callable[[RecordReader, Mapping[str, Any], "int | None"], Any]
_read_jaeger_span = _with_context(traces.read_jaeger_span)
_FORMATS: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], _Read], ...] = (
    ("OTLP", lambda value: any(name in value for name in _RESOURCE_KEYS), _with_context(otlp.read_resource)),
    ("Jaeger traces", _is_jaeger_trace, _with_context(traces.read_jaeger_trace)),
    ("Jaeger spans", _has("spanID", "operationName"), _read_jaeger_span),
    ("Jaeger spans", _has("spanId", "operationName"), _read_jaeger_span),
    ("Zipkin spans", _is_zipkin, _with_context(traces.read_zipkin_span)),
    (
        "Prometheus series",
        lambda value: "metric" in value and bool(value.keys() & {"values", "value", "histograms", "histogram"}),
        lambda reader, value, time_ns: prometheus.read_series(value, reader.context, reader.stem),
    ),
    ("Loki streams", _has("stream", "values"), _with_context(logs.read_loki_stream)),
    ("Loki streams", _has("stream", "entries"), _with_context(logs.read_loki_stream)),
    (
        "API response",
        lambda value: isinstance(value.get("status"), str) and bool(value.keys() & {"data", "error"}),
        _open_response,
    ),
    (
        "documents",
        lambda value: isinstance(value.get("_source"), Mapping),
        lambda reader, value, time_ns: value["_source"],
    ),
    (
        "Kubernetes watch",
        lambda value: value.get("type") in _WATCH_TYPES and isinstance(value.get("object"), Mapping),
        _open_watch,
    ),
    (
        "Kubernetes events",
        lambda value: "involvedObject" in value or "regarding" in value,
        _with_context(read_event),
    ),
    (
        "Kubernetes list",
        lambda value: str(value.get("kind")).endswith("List") and isinstance(value.get("items"), list),
        _open_list,
    ),
    (
        "Kubernetes objects",
        lambda value: (
            isinstance(value.get("kind"), str)
            and _has("metadata", "apiVersion")(value)
            and isinstance(value["metadata"], Mapping)
        ),
        lambda reader, value, time_ns: read_object(value, reader.context, time_ns),
    ),
    ("metric documents", _is_metric_document, _with_context(_read_metric_document)),
    ("span documents", _has("traceId", "spanId", "startTime"), _with_context(traces.read_span_document)),
    (
        "container logs",
        lambda value: isinstance(value.get("log"), str) and not isinstance(value.get("message"), str),
        _read_docker,
    ),
    (
        "JSON logs",
        lambda value: logs.is_log_record(logs.flatten(value)),
        lambda reader, value, time_ns: logs.read_json_log(logs.flatten(value), reader.context, time_ns),
    ),
    (
        "Elastic Kubernetes documents",
        lambda value: isinstance(value.get("kubernetes"), Mapping),
        _with_context(_read_elastic_document),
    ),
    # The action line of a bulk request names the index of the next document.
    (
        "bulk requests",
        lambda value: len(value) == 1 and bool(value.keys() & _BULK_ACTIONS),
        lambda reader, value, time_ns: None,
    ),
)
"""Name of a format, whether a record has it, and the reader of such records, which may return inner records to read.

The first match applies."""
