"""Parses answers of Jaeger, and collects spans while an episode runs."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from faultset.collector.platforms.kubernetes.telemetry.endpoints import parse_answer
from faultset.collector.sources.otlp import SPAN_KINDS, SpanRow
from faultset.collector.sources.span_store import SpanStore
from faultset.core.errors import PlatformError
from faultset.core.json_text import canonical_json
from faultset.datasets.status_codes import read_outcome

PATH = "/api/traces"
# cannot match inside a JSON string, whose quotes are escaped
_BEGIN = re.compile(rb'\{"traceID":"[0-9a-fA-F]+","spans":\[')

Traces = Sequence[Mapping[str, Any]]


class KnownTraces:
    """Finds traces that earlier answers did not contain."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def new_traces(self, body: bytes, name: str, *, fewer_than: int) -> tuple[int, Traces]:
        """Return the number of traces in an answer, and the new ones.

        The last trace always counts as new, as do all traces of a server with a different format. An answer with too
        many traces is not parsed, since it is requested again in smaller parts.

        Parameters
        ----------
        body
            The answer.
        name
            Name of the server for messages.
        fewer_than
            Number of traces that is too many; no trace is returned then.

        Raises
        ------
        CutAnswer
            The answer is incomplete.
        PlatformError
            The server refuses.
        """
        starts = [match.start() for match in _BEGIN.finditer(body)]
        if len(starts) >= fewer_than:
            return len(starts), []
        traces = [body[start:end] for start, end in pairwise(starts)]
        hashes = [hash(trace) for trace in traces]
        new = [trace for trace, mark in zip(traces, hashes, strict=True) if mark not in self._hashes]
        omitted = len(traces) - len(new)
        rest = b"".join((body[: starts[0]], *new, body[starts[-1] :])) if omitted else body
        parsed = parse_traces(rest, name)
        self._hashes.update(hashes)
        count = len(parsed) + omitted
        return count, parsed if count < fewer_than else []


def parse_traces(body: bytes, name: str) -> Traces:
    """Return the traces of an answer; raise CutAnswer if it is incomplete, PlatformError if the server refuses."""
    answer = parse_answer(body, name, PATH)
    if answer.get("errors"):
        raise PlatformError(f"{name} rejected the request for traces: {answer['errors'][0]}")
    return answer.get("data") or []


_US = 1_000
_LATEST_NS = 2**63 - 1
_TRACE_BYTES, _SPAN_BYTES = 16, 8

_BOOKKEEPING = frozenset({
    "internal.span.format", "w3c.tracestate", "otel.scope.name", "otel.scope.version", "otel.library.name",
    "otel.library.version", "sampler.type", "sampler.param", "span.kind", "otel.status_code",
})  # fmt: skip
"""Tags that Jaeger and its clients add; spans received by OTLP do not have them."""

POD_TAGS = ("k8s.pod.name", "hostname", "host.name")
NAMESPACE_TAG = "k8s.namespace.name"


class ReceivedSpan(NamedTuple):
    """A span with the namespace and pod names that its process reports."""

    row: SpanRow
    namespace: str | None
    pods: tuple[str, ...]
    """Possible names of the pod, best first."""
    is_shifted: bool
    """Whether Jaeger has shifted its times to correct a clock."""


def read_jaeger_spans(traces: Iterable[Mapping[str, Any]]) -> Iterator[ReceivedSpan]:
    """Yield the spans of complete and incomplete traces in the order of the answer."""
    for trace in traces:
        processes = {key: _Process.read(item) for key, item in (trace.get("processes") or {}).items()}
        for span in trace.get("spans") or ():
            process = processes.get(span.get("processID", "")) or _Process.read(span.get("process") or {})
            yield _read_span(span, process)


class _Process(NamedTuple):
    service: str
    namespace: str | None
    pods: tuple[str, ...]

    @classmethod
    def read(cls, process: Mapping[str, Any]) -> _Process:
        tags = _read_tags(process.get("tags"))
        pods = tuple(dict.fromkeys(str(tags[name]) for name in POD_TAGS if tags.get(name)))
        namespace = tags.get(NAMESPACE_TAG)
        return cls(process.get("serviceName") or "unknown_service", None if namespace is None else str(namespace), pods)


def _read_span(span: Mapping[str, Any], process: _Process) -> ReceivedSpan:
    tags = _read_tags(span.get("tags"))
    attributes = {name: value for name, value in tags.items() if name not in _BOOKKEEPING}
    status = {"ERROR": "error", "OK": "ok"}.get(str(tags.get("otel.status_code", "")).upper(), "unset")
    if status == "unset" and tags.get("error") in (True, "true"):
        status = "error"
    if status == "error" and attributes.get("error") in (True, "true"):
        del attributes["error"]
    peer = attributes.pop("peer.service", None)
    status, status_code, attributes = read_outcome(status, attributes)
    kind = str(tags.get("span.kind", "internal")).lower()
    row = SpanRow(
        start_ns=min(int(span["startTime"]) * _US, _LATEST_NS),
        duration_ns=int(span.get("duration", 0)) * _US,
        trace_id=_parse_id(span["traceID"], _TRACE_BYTES),
        span_id=_parse_id(span["spanID"], _SPAN_BYTES),
        parent_span_id=_parse_id(_find_parent(span), _SPAN_BYTES),
        reported_service=process.service,
        pod=process.pods[0] if process.pods else None,
        peer_service=None if peer is None else str(peer),
        operation=span.get("operationName", ""),
        kind=kind if kind in SPAN_KINDS else "internal",
        status=status,
        status_code=status_code,
        attributes=canonical_json(attributes),
    )
    shifted = any("clock skew" in str(warning).lower() for warning in span.get("warnings") or ())
    return ReceivedSpan(row, process.namespace, process.pods, shifted)


def _find_parent(span: Mapping[str, Any]) -> str:
    """Return the parent's id like Jaeger does: a child-of reference, otherwise a follows-from."""
    if span.get("parentSpanID"):
        return span["parentSpanID"]
    trace = span["traceID"]
    references = [entry for entry in span.get("references") or () if entry.get("traceID", trace) == trace]
    for kind in ("CHILD_OF", "FOLLOWS_FROM"):
        for reference in references:
            if reference.get("refType") == kind:
                return reference["spanID"]
    return ""


def _parse_id(text: str, width: int) -> bytes:
    """Return the bytes of an id, whose leading zeros may be missing."""
    return bytes.fromhex(text.zfill(2 * width))[-width:] if text else b""


def _read_tags(pairs: Iterable[Mapping[str, Any]] | None) -> dict[str, Any]:
    return {pair["key"]: _read_value(pair) for pair in pairs or ()}


def _read_value(pair: Mapping[str, Any]) -> Any:
    value, kind = pair.get("value"), pair.get("type")
    if kind == "int64" and isinstance(value, str):
        return _parse_int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _parse_int(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None


_log = logging.getLogger(__name__)


class CollectedSpans:
    """The spans that a snapshot has read so far; a trace is read again after new spans were added."""

    def __init__(self, start_ns: int, end_ns: int):
        self.store = SpanStore()
        self.known = KnownTraces()
        self.start_ns, self.end_ns = start_ns, end_ns
        self._sizes: dict[str, int] = {}
        self._seen: set[tuple[bytes, bytes]] = set()
        self._unidentified: set[str] = set()
        self._shifted = 0

    def new_or_grown(self, traces: Traces) -> Iterator[Mapping[str, Any]]:
        """Yield the traces that are new or have grown."""
        for trace in traces:
            name, size = trace.get("traceID", ""), len(trace.get("spans") or ())
            if self._sizes.get(name, 0) < size:
                self._sizes[name] = size
                yield trace

    def add(self, span: ReceivedSpan, pod: str | None) -> None:
        """Add a span of the application, unless it was already added."""
        row = span.row
        key = (row.trace_id, row.span_id)
        if key in self._seen or not self.start_ns <= row.start_ns < self.end_ns:
            return
        self._seen.add(key)
        self.store.add(row._replace(pod=pod))
        if pod is None and span.namespace is None:
            self._unidentified.add(row.reported_service)
        self._shifted += span.is_shifted

    def sentences(self) -> tuple[str, ...]:
        """Return sentences about spans without identification and times that Jaeger changed."""
        result = []
        if self._unidentified:
            result.append(
                f"spans of {', '.join(sorted(self._unidentified))} have neither pod nor namespace and were assigned by "
                "service name only; set the resource attribute k8s.pod.name"
            )
        if self._shifted:
            result.append(f"Jaeger has shifted the times of {self._shifted} spans (query.max-clock-skew-adjustment)")
        return tuple(result)


class EarlyReading:
    """A part of a snapshot that a thread reads in advance."""

    def __init__(self, reading: CollectedSpans, until_ns: int, read: Callable[[], None]):
        self.reading, self.until_ns = reading, until_ns
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=[read], name="early-reading", daemon=True)
        self._thread.start()

    def _run(self, read: Callable[[], None]) -> None:
        try:
            read()
        except Exception as error:
            self._error = error
            _log.info("spans could not be read in advance: %s", error)

    def wait(self) -> bool:
        """Wait until the thread has ended; return whether it has read everything."""
        self._thread.join()
        return self._error is None
