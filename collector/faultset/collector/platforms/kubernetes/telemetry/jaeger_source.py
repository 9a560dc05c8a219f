"""The source of spans on a cluster, from a Jaeger server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.platforms.kubernetes.telemetry.endpoints import CutAnswer, Endpoint, read_ahead
from faultset.collector.platforms.kubernetes.telemetry.jaeger_spans import (
    PATH,
    CollectedSpans,
    EarlyReading,
    KnownTraces,
    Traces,
    parse_traces,
)
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.jaeger import NAMESPACE_TAG, ReceivedSpan, read_jaeger_spans

TRACES_PER_PAGE = 1_000
_PROBE = 50
_FIRST_STEP_US, _LEAST_STEP_US = 12_000_000, 1
_TAIL_NS = 10_000_000_000
_LONG_S = 5
"""Minimum duration of a span that started before the tail and ended in or after its second half."""
_SETTLED_NS = 20_000_000_000
_TIMEOUT_S, _PAUSE_S = 15.0, 2.0
_US = 1_000


class JaegerSource:
    """The source of spans: every span of complete and incomplete traces in Jaeger, once.

    Several episodes may send the same service names to one server. A span is assigned to an episode by its namespace,
    otherwise by its pod, otherwise by its service name; `notes` report the last case.

    Parameters
    ----------
    endpoint
        The server of the query API.
    namespace
        The application's namespace.
    services
        Names of the application's workloads, the entry first; they are queried first.
    service_of_pod
        Returns the workload of a pod, which may have been deleted; None for pods of others.
    service_of_reported
        Returns the workload of a service name that a process reports; None for services of others.
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
        self._endpoint = endpoint
        self._namespace = namespace
        self._services = tuple(services)
        self._service_of_pod, self._service_of_reported = service_of_pod, service_of_reported
        self._page = traces_per_page
        self._sleep = sleep
        self._step_us = _FIRST_STEP_US
        self._tagged: set[str] = set()
        self._early: EarlyReading | None = None
        self.notes: tuple[str, ...] = ()

    def read_early(self, start_ns: int, end_ns: int, healthy_until_ns: int) -> None:
        """Start reading the spans of `[start_ns, healthy_until_ns)` in a thread.

        The next snapshot of `[start_ns, end_ns)` reads only the rest, or everything if the thread failed.
        """
        reading = CollectedSpans(start_ns, end_ns)
        until_ns = max(start_ns, healthy_until_ns - _TAIL_NS)
        self._early = EarlyReading(reading, until_ns, lambda: self._read(reading, start_ns, until_ns))

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the spans that started in `[start_ns, end_ns)` in order of their start, to the microsecond.

        Processes send spans a second or more after their end. The end of a recent window is therefore read until two
        answers agree or a timeout passes.

        Raises
        ------
        PlatformError
            The server refuses, is unreachable, or has more traces in a microsecond than it returns.
        """
        reading, read_ns = self._finish_early_reading(start_ns, end_ns)
        tail_ns = max(read_ns, end_ns - _TAIL_NS) if time.time_ns() < end_ns + _SETTLED_NS else end_ns
        self._read(reading, read_ns, tail_ns)
        deadline = time.monotonic() + _TIMEOUT_S
        before = -1
        while tail_ns < end_ns:
            self._read(reading, tail_ns, end_ns)
            if len(reading.store) == before or time.monotonic() > deadline:
                break
            before = len(reading.store)
            self._sleep(_PAUSE_S)
        self.notes = reading.sentences()
        table = self._with_services(reading.store.window(start_ns, end_ns).table({}))
        yield from table.to_batches(max_chunksize=65_536)

    def close(self) -> None:
        """Do nothing; may be called twice."""

    def _finish_early_reading(self, start_ns: int, end_ns: int) -> tuple[CollectedSpans, int]:
        """Return the spans that were read in advance, and the end of the part that was read."""
        early, self._early = self._early, None
        if early is None or (early.reading.start_ns, early.reading.end_ns) != (start_ns, end_ns) or not early.wait():
            return CollectedSpans(start_ns, end_ns), start_ns
        # long spans may have been sent after the early reading
        long = {"minDuration": f"{_LONG_S}s"}
        self._read(early.reading, start_ns, early.until_ns, long, step_us=(early.until_ns - start_ns) // _US + 1)
        return early.reading, early.until_ns

    def _with_services(self, table: pa.Table) -> pa.Table:
        """Fill in the workload of the pod, otherwise that of the reported service name."""
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
        reading: CollectedSpans,
        start_ns: int,
        end_ns: int,
        filters: Mapping[str, str] = MappingProxyType({}),
        *,
        step_us: int | None = None,
    ) -> None:
        """Read the traces with a span in the window, with filters of Jaeger's query API."""
        start_us, end_us = start_ns // _US, -(-end_ns // _US)
        if start_us >= end_us:
            return
        for page in read_ahead(self._pages(start_us, end_us, filters, reading.known, step_us)):
            for span in read_jaeger_spans(reading.new_or_grown(page)):
                if self._is_ours(span):
                    reading.add(span, self._pod(span))

    def _is_ours(self, span: ReceivedSpan) -> bool:
        if span.namespace is not None:
            return span.namespace == self._namespace
        if span.pods:
            return any(self._service_of_pod(pod) is not None for pod in span.pods)
        return self._service_of_reported(span.row.reported_service) is not None

    def _pod(self, span: ReceivedSpan) -> str | None:
        candidates = (pod for pod in span.pods if self._service_of_pod(pod) is not None)
        return next(candidates, span.pods[0] if span.pods else None)

    def _list_services(self) -> list[str]:
        reported_names = self._endpoint.get("/api/services").get("data") or []
        return list(dict.fromkeys([name for name in self._services if name in reported_names] + sorted(reported_names)))

    def _filters_of(self, service: str, start_us: int, end_us: int) -> Mapping[str, str] | None:
        """Return filters that exclude spans of others at the server; empty if processes do not report a namespace.

        None means that the service has no span of ours in the window.
        """
        filters = {"tags": json.dumps({NAMESPACE_TAG: self._namespace})}
        if service in self._tagged:
            return filters
        try:
            if self._probe(service, start_us, end_us, limit=1, filters=filters):
                self._tagged.add(service)
                return filters
            traces = self._probe(service, start_us, end_us, limit=_PROBE, filters={})
        except CutAnswer:
            return {}
        spans = (span for span in read_jaeger_spans(traces) if span.row.reported_service == service)
        return None if all(span.namespace is not None for span in spans) else {}

    def _pages(
        self, start_us: int, end_us: int, filters: Mapping[str, str], known_traces: KnownTraces, step_us: int | None
    ) -> Iterator[Traces]:
        """Yield the new traces of the window in pages, service by service."""
        for service in self._list_services():
            own_filters = self._filters_of(service, start_us, end_us)
            if own_filters is not None:
                yield from self._pages_of(service, start_us, end_us, {**own_filters, **filters}, known_traces, step_us)

    def _pages_of(
        self,
        service: str,
        start_us: int,
        end_us: int,
        filters: Mapping[str, str],
        known_traces: KnownTraces,
        first_step_us: int | None,
    ) -> Iterator[Traces]:
        """Yield the new traces with a span of the service in the window, in pages below the limit."""
        step_us, at_us = first_step_us or self._step_us, start_us
        while at_us < end_us:
            until_us = min(at_us + step_us, end_us)
            try:
                body = self._body(service, at_us, until_us, limit=self._page, filters=filters)
                count, traces = known_traces.new_traces(body, self._endpoint.name, fewer_than=self._page)
            except CutAnswer:
                count, traces = self._page, ()
            if count >= self._page:
                if until_us - at_us <= _LEAST_STEP_US:
                    raise PlatformError(
                        f"{self._endpoint.name} has {self._page} traces of {service} within a microsecond, or an "
                        "incomplete one; reduce the sampling rate"
                    )
                step_us = max(_LEAST_STEP_US, (until_us - at_us) // 2)
                continue
            yield traces
            if count < self._page // 4:
                step_us *= 2
            at_us = until_us
        if first_step_us is None:
            self._step_us = min(step_us, _FIRST_STEP_US)

    def _probe(self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]) -> Traces:
        return parse_traces(self._body(service, start_us, end_us, limit=limit, filters=filters), self._endpoint.name)

    def _body(self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]) -> bytes:
        window = {"service": service, "start": str(start_us), "end": str(end_us)}
        return self._endpoint.body(PATH, {**window, "limit": str(limit), "raw": "true", **filters})


def _map_services(column: pa.ChunkedArray, service_of: Callable[[str], str | None]) -> pa.Array:
    """Return the workloads of the names in a dictionary column."""
    names = column.combine_chunks()
    services = pa.array([service_of(name) for name in names.dictionary.to_pylist()], pa.string())
    return services.take(names.indices)
