"""What is read of a window of spans: each once, some of them beforehand."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faultset.collector.platforms.kubernetes.telemetry.jaeger.answers import KnownTraces, Traces
from faultset.collector.platforms.kubernetes.telemetry.jaeger.spans import Sent
from faultset.collector.sources.span_store import SpanStore

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
