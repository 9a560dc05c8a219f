"""The source of spans on a cluster, from a Jaeger server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, read_ahead
from faultset.collector.platforms.kubernetes.telemetry.jaeger_pages import TRACES_PER_PAGE, TracePager
from faultset.collector.platforms.kubernetes.telemetry.jaeger_spans import (
    CollectedSpans,
    EarlyReading,
)
from faultset.datasets.telemetry_formats.spans import ReceivedSpan, read_jaeger_spans

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
    endpoint
        The server of the query API.
    namespace
        The application's namespace.
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
    """Return the workloads of the names in a dictionary column."""
    names = column.combine_chunks()
    services = pa.array([service_of(name) for name in names.dictionary.to_pylist()], pa.string())
    return services.take(names.indices)
