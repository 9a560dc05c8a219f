"""Read traces of Jaeger and Zipkin, and span documents of an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultset.datasets.imports.telemetry.identity import Origin, read_origin, short_name
from faultset.datasets.imports.telemetry.readers.otlp import add_span
from faultset.datasets.imports.telemetry.rows import ReadingContext
from faultset.datasets.telemetry_formats.otlp_json import (
    read_attributes,
    read_float,
    read_id,
    read_int,
    read_kind,
    read_status,
)
from faultset.datasets.telemetry_formats.spans import read_span_facts, read_tags

_US = 1_000
SHIFTED = "Jaeger has shifted the time of the span to correct a clock"


def read_jaeger_trace(trace: Mapping[str, Any], context: ReadingContext) -> None:
    """Read a trace of Jaeger's query API, its download, or its model."""
    processes = trace.get("processes")
    origins = (
        {key: _read_process(item, context) for key, item in processes.items()} if isinstance(processes, Mapping) else {}
    )
    for entry in trace.get("processMap") or ():
        if isinstance(entry, Mapping):
            origins[str(entry.get("processId"))] = _read_process(entry.get("process"), context)
    for span in trace.get("spans") or ():
        if isinstance(span, Mapping):
            read_jaeger_span(span, context, origins)
        else:
            context.rows.drop("is a span with an unknown structure")


def read_jaeger_span(
    span: Mapping[str, Any], context: ReadingContext, processes: Mapping[str, Origin] | None = None
) -> None:
    """Read a Jaeger span, either an individual document of its index or part of a trace."""
    origin = (processes or {}).get(str(span.get("processID") or span.get("processId")))
    if origin is None:
        origin = _read_process(span.get("process"), context)
    try:
        facts = read_span_facts({**span, "tags": _tag_list(span), "references": _list_references(span)})
    except (AttributeError, KeyError, TypeError):
        context.rows.drop("has malformed tags or references")
        return
    trace_id, span_id = (span.get("traceID") or span.get("traceId")), (span.get("spanID") or span.get("spanId"))
    start = span.get("startTime")
    start_ns = read_int(start) * _US if isinstance(start, int | float) else context.parse_time(start)  # type: ignore[operator]
    if facts.is_shifted:
        context.rows.note(SHIFTED)
    add_span(
        context,
        origin,
        start_ns,
        _duration_ns(span.get("duration")),
        ids=(_pad(read_id(trace_id, 16), 32), _pad(read_id(span_id, 8), 16), _pad(read_id(facts.parent_id, 8), 16)),
        operation=span.get("operationName"),
        kind=facts.kind,
        outcome=(facts.status, facts.attributes),
    )


def _list_references(span: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return references with the field names of the query API; without a trace id, a reference is within the trace."""
    return [
        {
            "refType": entry.get("refType", "CHILD_OF"),
            "traceID": _get_reference_trace(span, entry),
            "spanID": entry.get("spanID") or entry.get("spanId") or "",
        }
        for entry in span.get("references") or ()
        if isinstance(entry, Mapping)
    ]


def _get_reference_trace(span: Mapping[str, Any], entry: Mapping[str, Any]) -> Any:
    """Return the span's trace id for a reference within its trace, and a different text for other references."""
    trace = span.get("traceID") or span.get("traceId")
    return span.get("traceID") if (entry.get("traceID") or entry.get("traceId") or trace) == trace else "another"


def _read_process(process: Any, context: ReadingContext) -> Origin:
    if not isinstance(process, Mapping):
        return context.origin
    facts = read_tags(_tag_list(process))
    if process.get("serviceName"):
        facts["service.name"] = process["serviceName"]
    return read_origin(facts, context.origin)


def _tag_list(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return tags as a list, as in Jaeger's query API.

    Indexes store them as a mapping under `tag`; Jaeger's model has a field for each type of value.
    """
    tags = record.get("tags")
    pairs = (
        [_plain_tag(tag) for tag in tags if isinstance(tag, Mapping) and "key" in tag] if isinstance(tags, list) else []
    )
    index_tags = record.get("tag")
    if isinstance(index_tags, Mapping):
        pairs += [{"key": str(key).replace("@", "."), "value": value} for key, value in index_tags.items()]
    return pairs


def _plain_tag(tag: Mapping[str, Any]) -> Mapping[str, Any]:
    if "value" in tag:
        return tag
    value = next((tag[name] for name in ("vStr", "vBool", "vInt64", "vFloat64", "vBinary") if name in tag), None)
    return {"key": tag["key"], "value": value, "type": str(tag.get("vType", "string")).lower()}


def _duration_ns(value: Any) -> int:
    if isinstance(value, str) and value.endswith("s"):
        return round((read_float(value[:-1]) or 0.0) * 1e9)
    return (read_int(value) or 0) * _US


def _pad(text: str, width: int) -> str:
    """Add the leading zeros that old clients omit."""
    return text.zfill(width) if text and all(char in "0123456789abcdef" for char in text) else text


def read_zipkin_span(span: Mapping[str, Any], context: ReadingContext) -> None:
    """Read a span of Zipkin v2. Assembly separates the two halves of a shared span."""
    endpoint, remote = span.get("localEndpoint"), span.get("remoteEndpoint")
    service = endpoint.get("serviceName") if isinstance(endpoint, Mapping) else None
    peer = remote.get("serviceName") if isinstance(remote, Mapping) else None
    tags = span.get("tags")
    attributes = {str(key): value for key, value in tags.items()} if isinstance(tags, Mapping) else {}
    status = "error" if "error" in attributes and attributes["error"] not in ("false", False) else "unset"
    kind = read_kind(span.get("kind"))
    if peer and kind in ("client", "producer", "internal"):
        attributes.setdefault("peer.service", peer)
    start_ns = context.parse_time(read_int(span.get("timestamp")))
    if start_ns is None:
        start_ns = _first_annotation_ns(span, context)
    add_span(
        context,
        read_origin(attributes, context.origin)._replace(service=short_name(service) or context.origin.service),
        start_ns,
        _duration_ns(span.get("duration")),
        ids=(read_id(span.get("traceId"), 16), read_id(span.get("id"), 8), read_id(span.get("parentId"), 8)),
        operation=span.get("name"),
        kind=kind,
        outcome=(status, attributes),
    )


def _first_annotation_ns(span: Mapping[str, Any], context: ReadingContext) -> int | None:
    annotations = span.get("annotations")
    times = [entry.get("timestamp") for entry in annotations or () if isinstance(entry, Mapping)]
    return context.parse_time(min((read_int(time) or 0 for time in times if time), default=None))


def read_span_document(span: Mapping[str, Any], context: ReadingContext) -> None:
    """Read a span from an index of OpenTelemetry data, with names in camel case and times as text."""
    resource = span.get("resource")
    facts = dict(resource) if isinstance(resource, Mapping) else {}
    inner = facts.pop("attributes", None)
    facts |= read_attributes(inner) | _select_prefixed(span, "resource.attributes.")
    if span.get("serviceName"):
        facts.setdefault("service.name", span["serviceName"])
    attributes = read_attributes(span.get("attributes")) | _select_prefixed(span, "span.attributes.")
    attributes.pop("data_stream", None)
    state = span.get("status")
    state = state if isinstance(state, Mapping) else {"code": span.get("status.code")}
    if state.get("message"):
        attributes["otel.status_description"] = state["message"]
    start_ns, end_ns = context.parse_time(span.get("startTime")), context.parse_time(span.get("endTime"))
    duration_ns = read_int(span.get("durationInNanos"))
    if duration_ns is None:
        duration_ns = (end_ns or start_ns or 0) - (start_ns or 0)
    add_span(
        context,
        read_origin(facts, context.origin),
        start_ns,
        duration_ns,
        ids=(read_id(span.get("traceId"), 16), read_id(span.get("spanId"), 8), read_id(span.get("parentSpanId"), 8)),
        operation=span.get("name"),
        kind=read_kind(span.get("kind")),
        outcome=(read_status(state.get("code")), attributes),
    )


def _select_prefixed(record: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return attributes that a document holds as separate fields, with `@` for dots."""
    return {
        str(name)[len(prefix) :].replace("@", "."): value
        for name, value in record.items()
        if str(name).startswith(prefix)
    }
