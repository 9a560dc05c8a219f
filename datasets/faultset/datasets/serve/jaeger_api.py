"""Responses of Jaeger's query API about an episode, without I/O."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from faultset.datasets.serve.promql.series import QueryError
from faultset.datasets.serve.request_times import Parameters, duration_s, parse_integer, single
from faultset.datasets.serve.telemetry import ServedTelemetry

if TYPE_CHECKING:
    import pandas as pd

NAMESPACE_TAG, POD_TAG = "k8s.namespace.name", "k8s.pod.name"
_US = 1_000
_DEFAULT_LIMIT = 20
_MAX_TRACES = 5_000
_MAX_GRPC_CODE = 99
Rows = npt.NDArray[np.int64]


class JaegerApi:
    """Answers requests below `/api/`; a span is visible once it has ended."""

    def __init__(self, telemetry: ServedTelemetry) -> None:
        self._telemetry = telemetry

    def answer(self, resource: str, parameters: Parameters) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the document for a path below `/api/`, such as `traces`."""
        try:
            data = self._answer(resource.split("/"), parameters)
        except QueryError as error:
            return 400, _build_document(None, [{"code": 400, "msg": str(error)}])
        if data is None:
            return 404, _build_document(None, [{"code": 404, "msg": f'"{resource}" does not exist'}])
        return 200, _build_document(data)

    def _answer(self, words: Sequence[str], parameters: Parameters) -> list[Any] | None:
        match words:
            case ["services"]:
                return self._services()
            case ["services", service, "operations"]:
                return sorted({operation for operation, _ in self._operations(service)})
            case ["operations"]:
                kind = (parameters.get("spanKind") or [""])[0]
                pairs = self._operations(single(parameters, "service"))
                return [{"name": name, "spanKind": value} for name, value in sorted(pairs) if kind in ("", value)]
            case ["traces"]:
                return self._traces(parameters)
            case ["traces", trace]:
                return self._build_traces([trace]) or None
            case ["dependencies"]:
                return self._dependencies(parameters)
        return None

    @cached_property
    def _columns(self) -> dict[str, Any]:
        """Columns of the spans as arrays of Python objects or integers."""
        frame = self._telemetry.spans
        return {name: _to_python_values(frame[name]) for name in frame.columns}

    @cached_property
    def _trace_rows(self) -> dict[Any, Any]:
        """Rows of each trace."""
        return self._telemetry.spans.groupby("trace_id", sort=False).indices

    @cached_property
    def _service_rows(self) -> dict[Any, Any]:
        """Rows of each service, in time order."""
        return self._telemetry.spans.groupby("reported_service", observed=True, sort=True).indices

    @cached_property
    def _ends_ns(self) -> Rows:
        return self._columns["time"] + self._columns["duration_ns"]

    def _filter_visible(self, rows: Rows) -> Rows:
        return rows[self._ends_ns[rows] <= self._telemetry.clock.now_ns]

    def _services(self) -> list[str]:
        return sorted(name for name, rows in self._service_rows.items() if len(self._filter_visible(rows)))

    def _operations(self, service: str) -> set[tuple[str, str]]:
        rows = self._filter_visible(self._service_rows.get(service, np.zeros(0, dtype=np.int64)))
        return {(self._columns["operation"][row], self._columns["kind"][row]) for row in rows}

    def _traces(self, parameters: Parameters) -> list[Any]:
        if parameters.get("traceID"):
            return self._build_traces(parameters["traceID"])
        service = single(parameters, "service")
        end_us = parse_integer(parameters, "end", self._telemetry.clock.now_ns // _US)
        start_us = parse_integer(parameters, "start", self._telemetry.clock.start_ns // _US)
        limit = parse_integer(parameters, "limit", _DEFAULT_LIMIT)
        if not 0 < limit <= _MAX_TRACES:
            raise QueryError(f'"limit" must be from 1 to {_MAX_TRACES}, got {limit}')
        rows = self._filter_visible(self._service_rows.get(service, np.zeros(0, dtype=np.int64)))
        starts_us, durations_us = self._columns["time"][rows] // _US, self._columns["duration_ns"][rows] // _US
        chosen = (starts_us >= start_us) & (starts_us <= end_us)
        chosen &= durations_us >= _microseconds(parameters, "minDuration", 0)
        chosen &= durations_us <= _microseconds(parameters, "maxDuration", np.iinfo(np.int64).max)
        rows = rows[chosen]
        operation, tags = (parameters.get("operation") or [""])[0], _required_tags(parameters)
        if operation:
            rows = rows[[self._columns["operation"][row] == operation for row in rows]]
        if tags:
            rows = rows[[self._has_tags(row, tags) for row in rows]]
        newest_first = dict.fromkeys(self._columns["trace_id"][row] for row in rows[::-1])
        return self._build_traces(list(newest_first)[:limit])

    def _has_tags(self, row: int, tags: Mapping[str, str]) -> bool:
        present = {tag["key"]: _tag_text(tag["value"]) for tag in [*self._tags(row), *self._process(row)["tags"]]}
        return all(present.get(key) == value for key, value in tags.items())

    def _build_traces(self, traces: Iterable[str]) -> list[dict[str, Any]]:
        """Return the documents of the traces that exist, in the given order."""
        documents = []
        for trace in traces:
            key = trace.lower()
            rows = self._trace_rows.get(key, self._trace_rows.get(key.zfill(32), np.zeros(0, dtype=np.int64)))
            rows = self._filter_visible(rows)
            if len(rows):
                documents.append(self._trace(self._columns["trace_id"][rows[0]], rows))
        return documents

    def _trace(self, trace: str, rows: Rows) -> dict[str, Any]:
        names: dict[tuple[str, str | None], str] = {}
        processes, spans, columns = {}, [], self._columns
        for row in rows:
            name = names.setdefault((columns["reported_service"][row], columns["pod"][row]), f"p{len(names) + 1}")
            processes.setdefault(name, self._process(row))
            parent = columns["parent_span_id"][row]
            references = [{"refType": "CHILD_OF", "traceID": trace, "spanID": parent}] if parent else []
            spans.append(
                {
                    "traceID": trace,
                    "spanID": columns["span_id"][row],
                    "operationName": columns["operation"][row],
                    "references": references,
                    "startTime": int(columns["time"][row] // _US),
                    "duration": int(columns["duration_ns"][row] // _US),
                    "tags": self._tags(row),
                    "logs": [],
                    "processID": name,
                    "warnings": None,
                }
            )
        return {"traceID": trace, "spans": spans, "processes": processes, "warnings": None}

    def _process(self, row: int) -> dict[str, Any]:
        pod = self._columns["pod"][row]
        tags = [_tag(NAMESPACE_TAG, self._telemetry.namespace)] + ([_tag(POD_TAG, pod)] if pod else [])
        return {"serviceName": self._columns["reported_service"][row], "tags": tags}

    def _tags(self, row: int) -> list[dict[str, Any]]:
        """Return the tags of a span, including the tags that Jaeger derives from OTLP."""
        columns = self._columns
        tags = [_tag(key, value) for key, value in json.loads(columns["attributes"][row] or "{}").items()]
        tags.append(_tag("span.kind", columns["kind"][row]))
        if columns["peer_service"][row]:
            tags.append(_tag("peer.service", columns["peer_service"][row]))
        code = columns["status_code"][row]
        if code is not None:
            is_grpc = code <= _MAX_GRPC_CODE
            tags.append(_tag("rpc.grpc.status_code" if is_grpc else "http.response.status_code", int(code)))
        if columns["status"][row] != "unset":
            tags.append(_tag("otel.status_code", columns["status"][row].upper()))
        if columns["status"][row] == "error":
            tags.append(_tag("error", True))
        return tags

    def _dependencies(self, parameters: Parameters) -> list[dict[str, Any]]:
        """Return the number of calls between services, from spans whose parent belongs to another service."""
        end_ns = parse_integer(parameters, "endTs", self._telemetry.clock.now_ns // 1_000_000) * 1_000_000
        start_ns = end_ns - parse_integer(parameters, "lookback", 1 << 40) * 1_000_000
        frame = self._telemetry.spans
        rows = self._filter_visible(np.flatnonzero((frame["time"] >= start_ns) & (frame["time"] <= end_ns)))
        spans = frame.iloc[rows][["trace_id", "span_id", "parent_span_id", "reported_service"]]
        spans = spans.astype({"reported_service": object})
        parents = spans.drop(columns="parent_span_id")
        parents = parents.rename(columns={"span_id": "parent_span_id", "reported_service": "parent"})
        calls = spans.merge(parents, on=["trace_id", "parent_span_id"])
        counts = Counter(zip(calls["parent"], calls["reported_service"], strict=True))
        return [
            {"parent": parent, "child": child, "callCount": count}
            for (parent, child), count in sorted(counts.items())
            if parent != child
        ]


def _build_document(data: list[Any] | None, errors: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"data": data, "total": len(data or ()), "limit": 0, "offset": 0, "errors": errors}


def _to_python_values(column: pd.Series) -> Any:
    if column.dtype.kind in "iu":
        return column.to_numpy()
    values = column.astype(object)
    return values.where(values.notna(), None).to_numpy()


def _tag(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "type": "bool", "value": value}
    if isinstance(value, int):
        return {"key": key, "type": "int64", "value": value}
    if isinstance(value, float):
        return {"key": key, "type": "float64", "value": value}
    return {"key": key, "type": "string", "value": value if isinstance(value, str) else json.dumps(value)}


def _tag_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _required_tags(parameters: Parameters) -> dict[str, str]:
    """Return the tags of a search, from `tags` as JSON and `tag` as KEY:VALUE."""
    tags: dict[str, str] = {}
    for text in parameters.get("tags", ()):
        try:
            tags |= {key: _tag_text(value) for key, value in json.loads(text).items()}
        except (ValueError, AttributeError):
            raise QueryError(f'"tags" must be a JSON object such as {{"error":"true"}}, got "{text[:60]}"') from None
    for text in parameters.get("tag", ()):
        key, colon, value = text.partition(":")
        if not colon:
            raise QueryError(f'"tag" must be KEY:VALUE, got "{text[:60]}"')
        tags[key] = value
    return tags


def _microseconds(parameters: Parameters, name: str, default: int) -> int:
    text = (parameters.get(name) or [""])[0]
    return round(1e6 * duration_s(text, name)) if text else default
