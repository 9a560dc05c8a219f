"""Answers of Jaeger as spans, and spans that were collected while an episode runs."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from faultset.collector.platforms.kubernetes.telemetry.endpoints import parsed
from faultset.collector.sources.otlp import SPAN_KINDS, SpanRow
from faultset.collector.sources.span_store import SpanStore
from faultset.core.errors import PlatformError
from faultset.core.json_text import canonical_json
from faultset.datasets.status_codes import read_outcome

PATH = "/api/traces"
# no text within a JSON string can look like this: its quotes would be escaped
_BEGIN = re.compile(rb'\{"traceID":"[0-9a-fA-F]+","spans":\[')

Traces = Sequence[Mapping[str, Any]]


class KnownTraces:
    """Tells traces that are new from those that came in an earlier answer."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def new_traces(self, body: bytes, name: str, *, fewer_than: int) -> tuple[int, Traces]:
        """Return how many traces an answer holds, and those of them that are new.

        The last trace of an answer always counts as new, and all traces do where a server formats its answers in
        another way. An answer that is too full is left alone, for it will be asked for again in parts.

        Parameters
        ----------
        body
            The answer.
        name
            The server's name, for messages.
        fewer_than
            How many traces are too many; none is returned then.

        Raises
        ------
        CutAnswer
            The answer is not whole.
        PlatformError
            The server refuses.
        """
        begins = [match.start() for match in _BEGIN.finditer(body)]
        if len(begins) >= fewer_than:
            return len(begins), []
        parts = [body[begin:end] for begin, end in pairwise(begins)]
        marks = [hash(part) for part in parts]
        new = [part for part, mark in zip(parts, marks, strict=True) if mark not in self._known]
        left_out = len(parts) - len(new)
        rest = b"".join((body[: begins[0]], *new, body[begins[-1] :])) if left_out else body
        found = traces_of(rest, name)
        self._known.update(marks)
        count = len(found) + left_out
        return count, found if count < fewer_than else []


def traces_of(body: bytes, name: str) -> Traces:
    """Return the traces of an answer; raise CutAnswer or PlatformError as `KnownTraces.new_traces` does."""
    answer = parsed(body, name, PATH)
    if answer.get("errors"):
        raise PlatformError(f"{name} refuses the traces: {answer['errors'][0]}")
    return answer.get("data") or []


_US = 1_000
_LATEST_NS = 2**63 - 1
_TRACE_BYTES, _SPAN_BYTES = 16, 8

_BOOKKEEPING = frozenset({
    "internal.span.format", "w3c.tracestate", "otel.scope.name", "otel.scope.version", "otel.library.name",
    "otel.library.version", "sampler.type", "sampler.param", "span.kind", "otel.status_code",
})  # fmt: skip
"""Tags by which Jaeger and its clients say how a span came to it; a receiver of OTLP has none of them."""

POD_TAGS = ("k8s.pod.name", "hostname", "host.name")
NAMESPACE_TAG = "k8s.namespace.name"


class Sent(NamedTuple):
    """One span and what its process says of the place where it runs."""

    row: SpanRow
    namespace: str | None
    pods: tuple[str, ...]
    """What may be the pod's name, the best first."""
    is_shifted: bool
    """Whether Jaeger has moved its times, because it thinks that a clock is wrong."""


def sent_spans(traces: Iterable[Mapping[str, Any]]) -> Iterator[Sent]:
    """Yield the spans of traces, whole or not, in the order of the answer."""
    for trace in traces:
        processes = {key: _Process.read(found) for key, found in (trace.get("processes") or {}).items()}
        for span in trace.get("spans") or ():
            process = processes.get(span.get("processID", "")) or _Process.read(span.get("process") or {})
            yield _sent(span, process)


class _Process(NamedTuple):
    service: str
    namespace: str | None
    pods: tuple[str, ...]

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> _Process:
        tags = _tags(found.get("tags"))
        pods = tuple(dict.fromkeys(str(tags[name]) for name in POD_TAGS if tags.get(name)))
        namespace = tags.get(NAMESPACE_TAG)
        return cls(found.get("serviceName") or "unknown_service", None if namespace is None else str(namespace), pods)


def _sent(span: Mapping[str, Any], process: _Process) -> Sent:
    tags = _tags(span.get("tags"))
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
        trace_id=_id(span["traceID"], _TRACE_BYTES),
        span_id=_id(span["spanID"], _SPAN_BYTES),
        parent_span_id=_id(_parent(span), _SPAN_BYTES),
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
    return Sent(row, process.namespace, process.pods, shifted)


def _parent(span: Mapping[str, Any]) -> str:
    """Return the parent's id, as Jaeger itself takes it: a child-of reference first, else a follows-from."""
    if span.get("parentSpanID"):
        return span["parentSpanID"]
    trace = span["traceID"]
    same = [one for one in span.get("references") or () if one.get("traceID", trace) == trace]
    for kind in ("CHILD_OF", "FOLLOWS_FROM"):
        for reference in same:
            if reference.get("refType") == kind:
                return reference["spanID"]
    return ""


def _id(text: str, width: int) -> bytes:
    """Return an id whose leading zeros may have been cut off."""
    return bytes.fromhex(text.zfill(2 * width))[-width:] if text else b""


def _tags(pairs: Iterable[Mapping[str, Any]] | None) -> dict[str, Any]:
    return {pair["key"]: _value(pair) for pair in pairs or ()}


def _value(pair: Mapping[str, Any]) -> Any:
    value, kind = pair.get("value"), pair.get("type")
    if kind == "int64" and isinstance(value, str):
        return _whole(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _whole(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None


_log = logging.getLogger(__name__)


class CollectedSpans:
    """What one snapshot has read so far; a trace comes again when a span was added to it."""

    def __init__(self, start_ns: int, end_ns: int):
        self.store = SpanStore()
        self.known = KnownTraces()
        self.start_ns, self.end_ns = start_ns, end_ns
        self._sizes: dict[str, int] = {}
        self._seen: set[tuple[bytes, bytes]] = set()
        self._nameless: set[str] = set()
        self._shifted = 0

    def new_or_grown(self, traces: Traces) -> Iterator[Mapping[str, Any]]:
        """Yield the traces that are new or have grown."""
        for trace in traces:
            name, size = trace.get("traceID", ""), len(trace.get("spans") or ())
            if self._sizes.get(name, 0) < size:
                self._sizes[name] = size
                yield trace

    def add(self, sent: Sent, pod: str | None) -> None:
        """Keep a span that belongs to the application, once."""
        row = sent.row
        key = (row.trace_id, row.span_id)
        if key in self._seen or not self.start_ns <= row.start_ns < self.end_ns:
            return
        self._seen.add(key)
        self.store.add(row._replace(pod=pod))
        if pod is None and sent.namespace is None:
            self._nameless.add(row.reported_service)
        self._shifted += sent.is_shifted

    def sentences(self) -> tuple[str, ...]:
        """Return what could not be told apart, and what Jaeger changed."""
        made = []
        if self._nameless:
            made.append(
                f"spans of {', '.join(sorted(self._nameless))} name neither pod nor namespace and were told apart by "
                "their service's name only; set the resource attribute k8s.pod.name"
            )
        if self._shifted:
            made.append(f"Jaeger has moved the times of {self._shifted} spans (query.max-clock-skew-adjustment)")
        return tuple(made)


class EarlyReading:
    """A part of a snapshot that a thread reads beforehand."""

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
            _log.info("spans could not be read early: %s", error)

    def wait(self) -> bool:
        """Wait for the end of the reading; return whether everything was read."""
        self._thread.join()
        return self._error is None
