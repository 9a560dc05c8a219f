"""The source of spans on a cluster, from a Jaeger server."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.platforms.kubernetes.telemetry.endpoints import (
    Endpoint,
    TruncatedResponse,
    parse_response,
    read_ahead,
)
from faultset.collector.sources.stores import SpanStore
from faultset.core.errors import PlatformError
from faultset.core.printable import count_text
from faultset.datasets.telemetry_formats.spans import NAMESPACE_TAG, ReceivedSpan, read_jaeger_spans

TRACES_PATH = "/api/traces"
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
        fewer_than
            If the response has at least this many traces, none is returned.
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
    response = parse_response(body, name, TRACES_PATH)
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


TRACES_PER_PAGE = 1_000
_PROBE_LIMIT = 50
_FIRST_STEP_US, _MIN_STEP_US = 12_000_000, 1


class TracePager:
    """Reads traces in pages; a page that reaches the limit is read again in smaller windows.

    Parameters
    ----------
    namespace
        Only services with spans of this namespace, or without any namespace, are read; None for all.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        namespace: str | None,
        first_services: Sequence[str] = (),
        *,
        traces_per_page: int = TRACES_PER_PAGE,
    ):
        self._endpoint, self._namespace, self._services = endpoint, namespace, tuple(first_services)
        self._traces_per_page = traces_per_page
        self._step_us = _FIRST_STEP_US
        self._tagged_services: set[str] = set()

    def list_services(self) -> list[str]:
        """Return the services that the server lists, `first_services` first."""
        reported_names = self._endpoint.get("/api/services").get("data") or []
        return list(dict.fromkeys([name for name in self._services if name in reported_names] + sorted(reported_names)))

    def _build_filters(self, service: str, start_us: int, end_us: int) -> Mapping[str, str] | None:
        """Return query filters for spans of the namespace; empty if processes do not report a namespace.

        None means that the service has no span of the namespace in the window.
        """
        if self._namespace is None:
            return {}
        filters = {"tags": json.dumps({NAMESPACE_TAG: self._namespace})}
        if service in self._tagged_services:
            return filters
        try:
            if self._probe(service, start_us, end_us, limit=1, filters=filters):
                self._tagged_services.add(service)
                return filters
            traces = self._probe(service, start_us, end_us, limit=_PROBE_LIMIT, filters={})
        except TruncatedResponse:
            return {}
        spans = (span for span in read_jaeger_spans(traces) if span.row.reported_service == service)
        return None if all(span.namespace is not None for span in spans) else {}

    def pages(
        self,
        start_us: int,
        end_us: int,
        known_traces: KnownTraces,
        filters: Mapping[str, str] = MappingProxyType({}),
        step_us: int | None = None,
    ) -> Iterator[Traces]:
        """Yield the new traces of the window in pages, service by service; see `service_pages`."""
        for service in self.list_services():
            yield from self.service_pages(service, start_us, end_us, known_traces, filters, step_us)

    def service_pages(
        self,
        service: str,
        start_us: int,
        end_us: int,
        known_traces: KnownTraces,
        filters: Mapping[str, str] = MappingProxyType({}),
        step_us: int | None = None,
    ) -> Iterator[Traces]:
        """Yield the new traces of the window in which a service has a span.

        Parameters
        ----------
        known_traces
            Traces of earlier pages; the new traces are added.
        filters
            Parameters of Jaeger's query API.
        step_us
            Length of the first page's window; by default, that of the latest page.

        Raises
        ------
        PlatformError
            The server refuses the request, is unreachable, or has more traces in a microsecond than it returns.
        """
        if (by_namespace := self._build_filters(service, start_us, end_us)) is None:
            return
        filters = {**by_namespace, **filters}
        page_step_us, page_start_us = step_us or self._step_us, start_us
        while page_start_us < end_us:
            page_end_us = min(page_start_us + page_step_us, end_us)
            try:
                body = self._request_body(
                    service, page_start_us, page_end_us, limit=self._traces_per_page, filters=filters
                )
                count, traces = known_traces.new_traces(body, self._endpoint.name, fewer_than=self._traces_per_page)
            except TruncatedResponse:
                count, traces = self._traces_per_page, ()
            if count >= self._traces_per_page:
                if page_end_us - page_start_us <= _MIN_STEP_US:
                    raise PlatformError(
                        f"{self._endpoint.name} has {self._traces_per_page} traces of {service} within a microsecond, "
                        "or sends an incomplete response; reduce the sampling rate"
                    )
                page_step_us = max(_MIN_STEP_US, (page_end_us - page_start_us) // 2)
                continue
            yield traces
            if count < self._traces_per_page // 4:
                page_step_us *= 2
            page_start_us = page_end_us
        if step_us is None:
            self._step_us = min(page_step_us, _FIRST_STEP_US)

    def _probe(self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]) -> Traces:
        return parse_traces(
            self._request_body(service, start_us, end_us, limit=limit, filters=filters), self._endpoint.name
        )

    def _request_body(
        self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]
    ) -> bytes:
        window = {"service": service, "start": str(start_us), "end": str(end_us)}
        return self._endpoint.body(TRACES_PATH, {**window, "limit": str(limit), "raw": "true", **filters})


_TAIL_NS = 10_000_000_000
_LONG_S = 5
"""A span that starts before the tail and ends in its second half or later lasts at least this long."""
_SETTLE_NS = 20_000_000_000
_TIMEOUT_S, _PAUSE_S = 15.0, 2.0
_US_NS = 1_000


class JaegerSource:
    """The source of spans, which reads every span in Jaeger once, even if its trace is incomplete.

    Services of several episodes may have the same names and send spans to one server. The namespace of a span decides
    whether it belongs to the application; without a namespace its pod decides, and without a pod its service name.
    `notes` reports services whose spans were assigned by name only.

    Parameters
    ----------
    services
        Names of the application's workloads, which are queried first, beginning with the entry.
    service_of_pod
        Returns the workload of a pod, which may have been deleted; None for pods of other applications.
    service_of_reported
        Returns the workload of a service name that a process reports; None for services of other applications.
    """

    table = "spans"
    interval_s: float | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        namespace: str,
        services: Sequence[str],
        *,
        service_of_pod: Callable[[str], str | None],
        service_of_reported: Callable[[str], str | None],
        traces_per_page: int = TRACES_PER_PAGE,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._namespace = namespace
        self._pager = TracePager(endpoint, namespace, services, traces_per_page=traces_per_page)
        self._service_of_pod, self._service_of_reported = service_of_pod, service_of_reported
        self._sleep = sleep
        self._early: EarlyReading | None = None
        self.notes: tuple[str, ...] = ()

    def read_early(self, start_ns: int, end_ns: int, healthy_until_ns: int) -> None:
        """Start reading the spans from `start_ns` until 10 s before `healthy_until_ns` in a thread.

        The next snapshot of `[start_ns, end_ns)` reads only the rest, or everything if the thread failed.
        """
        spans = CollectedSpans(start_ns, end_ns)
        until_ns = max(start_ns, healthy_until_ns - _TAIL_NS)
        self._early = EarlyReading(spans, until_ns, lambda: self._read(spans, start_ns, until_ns))

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the spans that started in `[start_ns, end_ns)`, ordered by start time in microseconds.

        Spans arrive a second or more after they end. The last seconds of a recent window are therefore read
        repeatedly, until no new spans arrive or a timeout passes.

        Raises
        ------
        PlatformError
            The server refuses the request, is unreachable, or has more traces in a microsecond than it returns.
        """
        spans, read_ns = self._finish_early_reading(start_ns, end_ns)
        tail_ns = max(read_ns, end_ns - _TAIL_NS) if time.time_ns() < end_ns + _SETTLE_NS else end_ns
        self._read(spans, read_ns, tail_ns)
        deadline = time.monotonic() + _TIMEOUT_S
        previous_count = -1
        while tail_ns < end_ns:
            self._read(spans, tail_ns, end_ns)
            if len(spans.store) == previous_count or time.monotonic() > deadline:
                break
            previous_count = len(spans.store)
            self._sleep(_PAUSE_S)
        self.notes = spans.build_notes()
        table = self._fill_services(spans.store.window(start_ns, end_ns).table({}))
        yield from table.to_batches(max_chunksize=65_536)

    def close(self) -> None:
        """Do nothing; may be called twice."""

    def _finish_early_reading(self, start_ns: int, end_ns: int) -> tuple[CollectedSpans, int]:
        """Return the spans that were read in advance, and the time up to which they are complete."""
        early, self._early = self._early, None
        if early is None or (early.spans.start_ns, early.spans.end_ns) != (start_ns, end_ns) or not early.wait():
            return CollectedSpans(start_ns, end_ns), start_ns
        # long spans may have been sent after the early reading
        filters = {"minDuration": f"{_LONG_S}s"}
        self._read(early.spans, start_ns, early.until_ns, filters, step_us=(early.until_ns - start_ns) // _US_NS + 1)
        return early.spans, early.until_ns

    def _fill_services(self, table: pa.Table) -> pa.Table:
        """Fill in the workload of each span's pod or, without a pod, of its reported service name."""
        owners = pc.call_function(
            "coalesce",
            [
                _map_services(table["pod"], self._service_of_pod),
                _map_services(table["reported_service"], self._service_of_reported),
            ],
        )
        index = table.schema.get_field_index("service")
        return table.set_column(index, table.schema.field(index), owners.dictionary_encode())

    def _read(
        self,
        spans: CollectedSpans,
        start_ns: int,
        end_ns: int,
        filters: Mapping[str, str] = MappingProxyType({}),
        *,
        step_us: int | None = None,
    ) -> None:
        """Read the traces with a span in the window that match filters of Jaeger's query API."""
        start_us, end_us = start_ns // _US_NS, -(-end_ns // _US_NS)
        if start_us >= end_us:
            return
        for page in read_ahead(self._pager.pages(start_us, end_us, spans.known_traces, filters, step_us)):
            for span in read_jaeger_spans(spans.select_changed(page)):
                if self._is_from_application(span):
                    spans.add(span, self._choose_pod(span))

    def _is_from_application(self, span: ReceivedSpan) -> bool:
        if span.namespace is not None:
            return span.namespace == self._namespace
        if span.pods:
            return any(self._service_of_pod(pod) is not None for pod in span.pods)
        return self._service_of_reported(span.row.reported_service) is not None

    def _choose_pod(self, span: ReceivedSpan) -> str | None:
        candidates = (pod for pod in span.pods if self._service_of_pod(pod) is not None)
        return next(candidates, span.pods[0] if span.pods else None)


def _map_services(column: pa.ChunkedArray, service_of: Callable[[str], str | None]) -> pa.Array:
    names = column.combine_chunks()
    services = pa.array([service_of(name) for name in names.dictionary.to_pylist()], pa.string())
    return services.take(names.indices)
