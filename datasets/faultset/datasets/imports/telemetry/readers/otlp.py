"""Read OTLP traces, metrics and logs as JSON and protobuf, and Tempo's traces, which have the same format."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from faultset.core.files import canonical_json
from faultset.datasets.imports.telemetry.identity import Origin, read_origin, short_name, split_labels
from faultset.datasets.imports.telemetry.rows import STAGED, ReadingContext, StagedSeries
from faultset.datasets.status_codes import read_outcome
from faultset.datasets.telemetry_formats.log_lines import level_of_number, read_level
from faultset.datasets.telemetry_formats.otlp_json import (
    EVENT_NAME,
    OUR_EVENTS,
    OUR_FIELDS,
    get_field,
    read_attributes,
    read_float,
    read_id,
    read_int,
    read_kind,
    read_status,
    read_value,
)
from faultset.datasets.telemetry_formats.prometheus import prometheus_name

_DELTA = ("1", "AGGREGATION_TEMPORALITY_DELTA", "AGGREGATIONTEMPORALITY_DELTA")
_MAX_BUCKETS = 10_000


class Resource(NamedTuple):
    """Origin and attributes of the sender of a record."""

    origin: Origin
    facts: Mapping[str, Any]


def read_resource(record: Mapping[str, Any], context: ReadingContext) -> bool:
    """Read a resource with its spans, metrics or log records; return whether the record is a resource."""
    resource = record.get("resource")
    facts = read_attributes(resource.get("attributes")) if isinstance(resource, Mapping) else {}
    origin = read_origin(facts, context.origin)
    is_known = False
    for scopes, items, read in _PARTS:
        for scope in _as_list(get_field(record, scopes)):
            is_known = True
            if isinstance(scope, Mapping):
                for item in _as_list(get_field(scope, items)):
                    if isinstance(item, Mapping):
                        read(item, Resource(origin, facts), context)
                    else:
                        context.rows.drop(f"has {items} that are not objects")
            else:
                context.rows.drop(f"has {scopes} that are not objects")
    return is_known or any(get_field(record, scopes) is not None for scopes, *_ in _PARTS)


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _read_span(span: Mapping[str, Any], resource: Resource, context: ReadingContext) -> None:
    start_ns = context.parse_time(read_int(get_field(span, "startTimeUnixNano")))
    end_ns = context.parse_time(read_int(get_field(span, "endTimeUnixNano"))) or start_ns
    state = span.get("status")
    state = state if isinstance(state, Mapping) else {}
    attributes = read_attributes(span.get("attributes"))
    if state.get("message"):
        attributes["otel.status_description"] = state["message"]
    links = [link for link in _as_list(span.get("links")) if isinstance(link, Mapping)]
    if links:
        attributes["otel.links"] = [
            f"{read_id(get_field(link, 'traceId'), 16)}-{read_id(get_field(link, 'spanId'), 8)}" for link in links
        ]
    add_span(
        context,
        resource.origin,
        start_ns,
        (end_ns or 0) - (start_ns or 0),
        ids=(
            read_id(get_field(span, "traceId"), 16),
            read_id(get_field(span, "spanId"), 8),
            read_id(get_field(span, "parentSpanId"), 8),
        ),
        operation=span.get("name"),
        kind=read_kind(span.get("kind")),
        outcome=(read_status(state.get("code")), attributes),
    )


def add_span(
    context: ReadingContext,
    origin: Origin,
    start_ns: int | None,
    duration_ns: int,
    *,
    ids: tuple[str, str, str],
    operation: Any,
    kind: str,
    outcome: tuple[str, dict[str, Any]],
) -> None:
    """Add a span of any format.

    `ids` are those of the trace, the span and its parent, which may be empty. `outcome` is the status and all
    attributes.
    """
    trace_id, span_id, parent_id = ids
    if not trace_id or not span_id:
        context.rows.drop("has no trace or span id")
        return
    status, code, attributes = read_outcome(*outcome)
    peer = attributes.pop("peer.service", None)
    recorded_code = read_int(attributes.pop(OUR_FIELDS + "status_code", None))
    if duration_ns < 0:
        context.rows.note("the span ends before it starts; its duration is 0")
        duration_ns = 0
    row = {
        "trace_id": trace_id[:64],
        "span_id": span_id[:64],
        "parent_span_id": parent_id[:64] or None,
        "peer_service": short_name(peer) or None,
        "operation": short_name(operation),
        "kind": kind,
        "duration_ns": min(duration_ns, (1 << 62) - 1),
        "status": status,
        "status_code": code if recorded_code is None else recorded_code,
        "attributes": context.attributes(attributes),
    }
    context.rows.add("spans", origin, start_ns, row)


def _read_log(record: Mapping[str, Any], resource: Resource, context: ReadingContext) -> None:
    time_ns = context.parse_time(read_int(get_field(record, "timeUnixNano")) or None)
    if time_ns is None:
        time_ns = context.parse_time(read_int(get_field(record, "observedTimeUnixNano")) or None)
    facts = read_attributes(record.get("attributes"))
    body = read_value(record.get("body"))
    origin = read_origin(facts, resource.origin)
    if str(facts.get(EVENT_NAME, "")).startswith(OUR_EVENTS):
        _add_row(facts, time_ns, origin, context)
        return
    if facts.get("k8s.event.reason"):
        _add_event({**resource.facts, **facts}, record, time_ns, context, origin)
        return
    text = body if isinstance(body, str) else "" if body is None else canonical_json_or_text(body)
    level = read_level(get_field(record, "severityText"))
    level = level or level_of_number(read_int(get_field(record, "severityNumber"))) or read_level(facts.get("level"))
    row = {
        "level": level,
        "message": context.rows.redact.hide(text),
        "trace_id": read_id(get_field(record, "traceId"), 16) or None,
        "span_id": read_id(get_field(record, "spanId"), 8) or None,
    }
    context.rows.add("logs", origin, time_ns, row)


def _add_row(facts: Mapping[str, Any], time_ns: int | None, origin: Origin, context: ReadingContext) -> None:
    """Add a row of one of our tables that our export wrote as an event."""
    table = str(facts[EVENT_NAME]).removeprefix(OUR_EVENTS)
    if table not in STAGED:
        context.rows.drop("is a row of an unknown table")
        return
    row = {
        name.removeprefix(OUR_FIELDS): value
        for name, value in facts.items()
        if name.startswith(OUR_FIELDS) and name.removeprefix(OUR_FIELDS) in STAGED[table].names
    }
    context.rows.add(table, origin, time_ns, row)


def _add_event(
    facts: Mapping[str, Any], record: Mapping[str, Any], time_ns: int | None, context: ReadingContext, origin: Origin
) -> None:
    """Add a Kubernetes event as OpenTelemetry's event receiver writes it."""
    body = read_value(record.get("body"))
    event = {
        "type": "Warning" if str(get_field(record, "severityText")).lower() == "warning" else "Normal",
        "message": body if isinstance(body, str) else "",
        "reason": facts.get("k8s.event.reason"),
        "kind": facts.get("k8s.object.kind"),
        "name": facts.get("k8s.object.name"),
        "count": facts.get("k8s.event.count"),
    }
    context.add_event(origin, time_ns, event)


def canonical_json_or_text(value: Any) -> str:
    """Return a value as canonical JSON, or as text if JSON cannot represent it."""
    try:
        return canonical_json(value)
    except (TypeError, ValueError):
        return str(value)


def _read_metric(metric: Mapping[str, Any], resource: Resource, context: ReadingContext) -> None:
    name, unit = short_name(metric.get("name")), short_name(metric.get("unit"))
    contents = {kind: get_field(metric, kind) for kind in _METRIC_KINDS}
    contents = {kind: content for kind, content in contents.items() if isinstance(content, Mapping)}
    if not name or not contents:
        context.rows.drop("is a metric without data" if name else "is a metric without a name")
        return
    facts = read_attributes(metric.get("metadata"))
    recorded_kind = short_name(facts.get(OUR_FIELDS + "kind"))
    for kind, content in contents.items():
        is_delta = str(get_field(content, "aggregationTemporality")).upper() in _DELTA
        prefix = "delta-" if is_delta else ""
        is_counter = kind == "sum" and bool(get_field(content, "isMonotonic"))
        stored = name if recorded_kind else prometheus_name(name, unit, "counter" if is_counter else kind)
        _record_role(stored, facts, context)
        for item in _as_list(get_field(content, "dataPoints")):
            if not isinstance(item, Mapping):
                context.rows.drop("is a data point with an unknown structure")
                continue
            time_ns = context.parse_time(read_int(get_field(item, "timeUnixNano")))
            labels: dict[str, Any] = read_attributes(item.get("attributes"))
            origin = resource.origin
            if not recorded_kind:
                origin, labels = split_labels(labels, origin)
            exemplars = item.get("exemplars")
            context.rows.note("exemplars are not kept", len(exemplars) if isinstance(exemplars, list) else 0)
            point = Point(context, origin, stored, labels, time_ns)
            if kind == "sum":
                _read_number(point, item, recorded_kind or f"{prefix}{'counter' if is_counter else 'gauge'}")
            else:
                _METRIC_KINDS[kind](point, item, prefix)


def _record_role(metric: str, facts: Mapping[str, Any], context: ReadingContext) -> None:
    """Record the role that our export declares for a metric; empty if the export declares none."""
    row = facts.get(OUR_FIELDS + "role")
    if isinstance(row, Mapping):
        context.rows.roles[metric] = {str(name): str(value) for name, value in row.items()}
    elif OUR_FIELDS + "kind" in facts:
        context.rows.roles.setdefault(metric, {})


class Point:
    """A data point of a metric, whose values are added as samples."""

    def __init__(
        self, context: ReadingContext, origin: Origin, metric: str, labels: dict[str, str], time_ns: int | None
    ) -> None:
        self.context, self.origin, self.metric, self.labels, self.time_ns = context, origin, metric, labels, time_ns

    def add(self, value: float | None, kind: str, suffix: str = "", **labels: str) -> None:
        """Add a sample; a missing value is dropped."""
        if value is None:
            self.context.rows.drop("is a data point without a value")
            return
        if math.isnan(value):
            return
        text = canonical_json(self.labels | labels)
        self.context.rows.add_sample(StagedSeries(self.origin, self.metric + suffix, text, kind), self.time_ns, value)


def _read_number(point: Point, content: Mapping[str, Any], kind: str) -> None:
    value = read_float(get_field(content, "asDouble"))
    if value is None:
        value = read_float(get_field(content, "asInt"))
    if value is None and (read_int(content.get("flags")) or 0) & 1:
        return
    point.add(value, kind)


def _read_histogram(point: Point, content: Mapping[str, Any], prefix: str) -> None:
    counts = [read_float(count) or 0.0 for count in _as_list(get_field(content, "bucketCounts"))]
    bounds = [read_float(bound) for bound in _as_list(get_field(content, "explicitBounds"))]
    total = read_float(content.get("count"))
    if len(counts) == len(bounds) + 1 <= _MAX_BUCKETS:
        for running, bound in zip(accumulate(counts), bounds, strict=False):
            point.add(running, f"{prefix}bucket", "_bucket", le=_format_bound(bound))
    elif counts or bounds:
        point.context.rows.note("the histogram has a wrong number of buckets; only its sum and count are kept")
    if total is None:
        point.context.rows.drop("is a histogram without a count")
    _add_totals(point, total, content, prefix)


def _add_totals(point: Point, total: float | None, content: Mapping[str, Any], prefix: str) -> None:
    """Add the last bucket, the count and the sum of a histogram, if they are known."""
    if total is not None:
        point.add(total, f"{prefix}bucket", "_bucket", le="+Inf")
        point.add(total, f"{prefix}count", "_count")
    value = read_float(content.get("sum"))
    if value is not None:
        point.add(value, f"{prefix}sum", "_sum")


def read_exponential(point: Point, content: Mapping[str, Any], prefix: str) -> None:
    """Read an exponential histogram as a classic one with the bounds of its buckets."""
    scale = read_int(content.get("scale")) or 0
    if not -20 <= scale <= 30:
        point.context.rows.drop("is a histogram with a scale outside -20 to 30")
        return
    counts: dict[float, float] = {}
    negative = _list_buckets(content, "negative")
    positive = _list_buckets(content, "positive")
    if len(negative) + len(positive) > _MAX_BUCKETS:
        point.context.rows.drop(f"is a histogram of more than {_MAX_BUCKETS:,} buckets")
        return
    for index, count in negative:
        counts[-_power(scale, index)] = count
    counts[read_float(get_field(content, "zeroThreshold")) or 0.0] = read_float(get_field(content, "zeroCount")) or 0.0
    for index, count in positive:
        counts[_power(scale, index + 1)] = count
    running = 0.0
    for bound in sorted(counts):
        running += counts[bound]
        if math.isfinite(bound):
            point.add(running, f"{prefix}bucket", "_bucket", le=_format_bound(bound))
    total = read_float(content.get("count"))
    _add_totals(point, running if total is None else total, content, prefix)


def _list_buckets(content: Mapping[str, Any], side: str) -> list[tuple[int, float]]:
    buckets = content.get(side)
    if not isinstance(buckets, Mapping):
        return []
    offset = read_int(buckets.get("offset")) or 0
    return [
        (offset + n, read_float(count) or 0.0) for n, count in enumerate(_as_list(get_field(buckets, "bucketCounts")))
    ]


def _power(scale: int, index: int) -> float:
    try:
        return 2.0 ** (index * 2.0**-scale)
    except OverflowError:
        return math.inf


def _read_summary(point: Point, content: Mapping[str, Any], prefix: str) -> None:
    for quantile in _as_list(get_field(content, "quantileValues")):
        if isinstance(quantile, Mapping):
            value = read_float(quantile.get("value"))
            level = read_float(quantile.get("quantile"))
            point.add(value or 0.0, "gauge", quantile=_format_bound(level or 0.0))
    for name in ("sum", "count"):
        value = read_float(content.get(name))
        if value is not None:
            point.add(value, name, f"_{name}")


def _format_bound(bound: float | None) -> str:
    if bound is None or math.isinf(bound):
        return "+Inf"
    return format(bound, ".17g") if bound != round(bound, 12) else repr(bound)


_METRIC_KINDS = {
    "gauge": lambda point, content, prefix: _read_number(point, content, "gauge"),
    "sum": _read_number,
    "histogram": _read_histogram,
    "exponentialHistogram": read_exponential,
    "summary": _read_summary,
}
_PARTS = (
    ("scopeSpans", "spans", _read_span),
    ("instrumentationLibrarySpans", "spans", _read_span),
    ("scopeMetrics", "metrics", _read_metric),
    ("instrumentationLibraryMetrics", "metrics", _read_metric),
    ("scopeLogs", "logRecords", _read_log),
    ("instrumentationLibraryLogs", "logs", _read_log),
)


def decode_requests(body: bytes) -> Iterator[Mapping[str, Any]] | None:
    """Return the resources of one protobuf request, or of several with length prefixes; None for other bytes.

    The file exporter of OpenTelemetry's collector writes length prefixes.
    """
    for pieces in ([body], _split_prefixed(body)):
        if pieces is None:
            continue
        for decode in _build_decoders():
            messages = [decode(piece) for piece in pieces]
            if messages and all(messages):
                return (resource for message in messages for resource in message or ())
    return None


def _split_prefixed(body: bytes) -> list[bytes] | None:
    pieces, position = [], 0
    while position + 4 <= len(body):
        (size,) = struct.unpack_from(">I", body, position)
        if size == 0 or position + 4 + size > len(body):
            break
        pieces.append(body[position + 4 : position + 4 + size])
        position += 4 + size
    return pieces if pieces and position == len(body) else None


def _build_decoders() -> Iterator[Any]:
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    for kind, field in ((TracesData, "resource_spans"), (MetricsData, "resource_metrics"), (LogsData, "resource_logs")):

        def decode(piece: bytes, kind: Any = kind, field: str = field) -> list[Any] | None:
            try:
                message = kind.FromString(piece)
            except DecodeError:
                return None
            resources = getattr(message, field)
            if not resources or not all(_is_plausible(resource) for resource in resources):
                return None
            return [MessageToDict(resource, use_integers_for_enums=True) for resource in resources]

        yield decode


def _is_plausible(resource: Any) -> bool:
    """Return whether a decoded resource has plausible fields; other messages also decode, into unknown fields."""
    scopes = next(
        getattr(resource, name) for name in ("scope_spans", "scope_metrics", "scope_logs") if hasattr(resource, name)
    )
    for scope in scopes:
        for item in next(getattr(scope, name) for name in ("spans", "metrics", "log_records") if hasattr(scope, name)):
            if hasattr(item, "span_id") and hasattr(item, "kind"):
                return len(item.trace_id) == 16 and len(item.span_id) == 8
            if hasattr(item, "time_unix_nano"):
                return bool(item.time_unix_nano or item.observed_time_unix_nano)
            return bool(item.name) and item.WhichOneof("data") is not None
    return False
