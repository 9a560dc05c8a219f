"""Parse responses of Jaeger and collect their spans without duplicates."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from faultset.collector.platforms.kubernetes.telemetry.endpoints import parse_response
from faultset.collector.sources.span_store import SpanStore
from faultset.core.errors import PlatformError
from faultset.core.printable import count_text
from faultset.datasets.telemetry_formats.spans import ReceivedSpan

PATH = "/api/traces"
# start of a trace; cannot match inside a JSON string, because quotes are escaped there
_TRACE_START = re.compile(rb'\{"traceID":"[0-9a-fA-F]+","spans":\[')

Traces = Sequence[Mapping[str, Any]]


class KnownTraces:
    """Finds traces that earlier responses did not contain."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def new_traces(self, body: bytes, name: str, *, fewer_than: int) -> tuple[int, Traces]:
        """Return the number of traces in a response, and the new ones.

        The last trace always counts as new. If a server formats its JSON differently from Jaeger, all traces count as
        new. A response with too many traces is not parsed, because callers request it again in smaller windows.

        Parameters
        ----------
        body
            The response.
        name
            Name of the server for messages.
        fewer_than
            If the response has at least this many traces, none is returned.

        Raises
        ------
        TruncatedResponse
            The response is incomplete.
        PlatformError
            The server refuses the request.
        """
        starts = [match.start() for match in _TRACE_START.finditer(body)]
        if len(starts) >= fewer_than:
            return len(starts), []
        traces = [body[start:end] for start, end in pairwise(starts)]
        hashes = [hash(trace) for trace in traces]
        new = [trace for trace, digest in zip(traces, hashes, strict=True) if digest not in self._hashes]
        omitted = len(traces) - len(new)
        rest = b"".join((body[: starts[0]], *new, body[starts[-1] :])) if omitted else body
        parsed = parse_traces(rest, name)
        self._hashes.update(hashes)
        count = len(parsed) + omitted
        return count, parsed if count < fewer_than else []


def parse_traces(body: bytes, name: str) -> Traces:
    """Return the traces of a response; raise TruncatedResponse, or PlatformError if the server refuses the request."""
    response = parse_response(body, name, PATH)
    if response.get("errors"):
        raise PlatformError(f"{name} rejected the request for traces: {response['errors'][0]}")
    return response.get("data") or []


_log = logging.getLogger(__name__)


class CollectedSpans:
    """The spans that a snapshot has read so far."""

    def __init__(self, start_ns: int, end_ns: int):
        self.store = SpanStore()
        self.known_traces = KnownTraces()
        self.start_ns, self.end_ns = start_ns, end_ns
        self._sizes: dict[str, int] = {}
        self._seen_spans: set[tuple[bytes, bytes]] = set()
        self._unidentified: set[str] = set()
        self._shifted = 0

    def select_changed(self, traces: Traces) -> Iterator[Mapping[str, Any]]:
        """Yield the traces that are new or have more spans than before."""
        for trace in traces:
            trace_id, size = trace.get("traceID", ""), len(trace.get("spans") or ())
            if self._sizes.get(trace_id, 0) < size:
                self._sizes[trace_id] = size
                yield trace

    def add(self, span: ReceivedSpan, pod: str | None) -> None:
        """Add a span of the application, unless it is outside the window or was already added."""
        row = span.row
        key = (row.trace_id, row.span_id)
        if key in self._seen_spans or not self.start_ns <= row.start_ns < self.end_ns:
            return
        self._seen_spans.add(key)
        self.store.add(row._replace(pod=pod))
        if pod is None and span.namespace is None:
            self._unidentified.add(row.reported_service)
        self._shifted += span.is_shifted

    def build_notes(self) -> tuple[str, ...]:
        """Return sentences about spans without a pod and namespace, and about times that Jaeger changed."""
        result = []
        if self._unidentified:
            result.append(
                f"spans of {', '.join(sorted(self._unidentified))} have neither pod nor namespace and were assigned by "
                "service name only; set the resource attribute k8s.pod.name"
            )
        if self._shifted:
            result.append(
                f"Jaeger has shifted the times of {count_text(self._shifted, 'span')} (query.max-clock-skew-adjustment)"
            )
        return tuple(result)


class EarlyReading:
    """A part of a snapshot that a thread reads in advance."""

    def __init__(self, spans: CollectedSpans, until_ns: int, read: Callable[[], None]):
        self.spans, self.until_ns = spans, until_ns
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
