"""Spans of an application on a cluster, from a Jaeger server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.platforms.kubernetes.telemetry.endpoints import CutAnswer, Endpoint, read_ahead
from faultset.collector.platforms.kubernetes.telemetry.jaeger_spans import (
    NAMESPACE_TAG,
    PATH,
    CollectedSpans,
    EarlyReading,
    KnownTraces,
    Sent,
    Traces,
    sent_spans,
    traces_of,
)
from faultset.core.errors import PlatformError

TRACES_PER_PAGE = 1_000
_PROBE = 50
_FIRST_STEP_US, _LEAST_STEP_US = 12_000_000, 1
_TAIL_NS = 10_000_000_000
_LONG_S = 5
"""A span that began before the tail and ended in the second half of it, or later, takes longer."""
_SETTLED_NS = 20_000_000_000
_TIMEOUT_S, _PAUSE_S = 15.0, 2.0
_US = 1_000
_READY_US = 60_000_000


class JaegerSource:
    """The table of spans: every span that reached Jaeger, of finished and unfinished traces, once.

    Several episodes may send the same service names to one server. Spans are told apart by the namespace they name,
    else by their pod, else, where they name neither, by their service's name alone; `notes` say when that was so.

    Parameters
    ----------
    endpoint
        The server of the query API.
    namespace
        Where the application runs.
    services
        Names of the application's workloads, the entry first; they are asked for even before they have reported.
    service_of_pod
        Workload of a pod, also of one that is gone; None for a stranger's.
    service_of_reported
        Workload behind a name that a process reports of itself; None for a stranger's.
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
        """Begin to read the spans of `[start_ns, healthy_until_ns)`, of which only long ones can still be under way.

        A thread does; the next snapshot of `[start_ns, end_ns)` reads what is missing then. It reads everything itself
        where the thread failed.
        """
        reading = CollectedSpans(start_ns, end_ns)
        until_ns = max(start_ns, healthy_until_ns - _TAIL_NS)
        self._early = EarlyReading(reading, until_ns, lambda: self._read(reading, start_ns, until_ns))

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the spans that began in `[start_ns, end_ns)` in order of their start, to the microsecond.

        Processes send their spans a second or more after they end. A window that has only just passed is read until
        two answers for its end agree, for a while at most.

        Raises
        ------
        PlatformError
            The server refuses, has gone, or has more traces in a microsecond than it gives.
        """
        reading, read_ns = self._begun(start_ns, end_ns)
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
        """Nothing is held; may be called twice."""

    def _begun(self, start_ns: int, end_ns: int) -> tuple[CollectedSpans, int]:
        """Return what was read early of a window, and until when it is read."""
        early, self._early = self._early, None
        if early is None or (early.reading.start_ns, early.reading.end_ns) != (start_ns, end_ns) or not early.wait():
            return CollectedSpans(start_ns, end_ns), start_ns
        # what ended later than that may have been sent after it was read
        long = {"minDuration": f"{_LONG_S}s"}
        self._read(early.reading, start_ns, early.until_ns, long, step_us=(early.until_ns - start_ns) // _US + 1)
        return early.reading, early.until_ns

    def _with_services(self, table: pa.Table) -> pa.Table:
        """Fill in the workload that owns the pod, else the one that the process names."""
        owners = pc.call_function(
            "coalesce",
            [
                _mapped(table["pod"], self._service_of_pod),
                _mapped(table["reported_service"], self._service_of_reported),
            ],
        )
        place = table.schema.get_field_index("service")
        return table.set_column(place, table.schema.field(place), owners.dictionary_encode())

    def _read(
        self,
        reading: CollectedSpans,
        start_ns: int,
        end_ns: int,
        filters: Mapping[str, str] = MappingProxyType({}),
        *,
        step_us: int | None = None,
    ) -> None:
        """Read the traces with a span in the window that passes the filters of Jaeger's query API."""
        start_us, end_us = start_ns // _US, -(-end_ns // _US)
        if start_us >= end_us:
            return
        for page in read_ahead(self._pages(start_us, end_us, filters, reading.known, step_us)):
            for sent in sent_spans(reading.new_or_grown(page)):
                if self._is_ours(sent):
                    reading.add(sent, self._pod(sent))

    def _is_ours(self, sent: Sent) -> bool:
        if sent.namespace is not None:
            return sent.namespace == self._namespace
        if sent.pods:
            return any(self._service_of_pod(pod) is not None for pod in sent.pods)
        return self._service_of_reported(sent.row.reported_service) is not None

    def _pod(self, sent: Sent) -> str | None:
        known = (pod for pod in sent.pods if self._service_of_pod(pod) is not None)
        return next(known, sent.pods[0] if sent.pods else None)

    def _reported(self) -> list[str]:
        known = self._endpoint.get("/api/services").get("data") or []
        return list(dict.fromkeys([name for name in self._services if name in known] + sorted(known)))

    def _filters_of(self, service: str, start_us: int, end_us: int) -> Mapping[str, str] | None:
        """Return the filters that leave strangers out already at the server, if the service's processes name them.

        A service without a span in the window needs no further question: it has None.
        """
        own = {"tags": json.dumps({NAMESPACE_TAG: self._namespace})}
        if service in self._tagged:
            return own
        try:
            if self._probe(service, start_us, end_us, limit=1, filters=own):
                self._tagged.add(service)
                return own
            traces = self._probe(service, start_us, end_us, limit=_PROBE, filters={})
        except CutAnswer:
            return {}
        named = [one.namespace is not None for one in sent_spans(traces) if one.row.reported_service == service]
        return None if all(named) else {}

    def _pages(
        self, start_us: int, end_us: int, filters: Mapping[str, str], known: KnownTraces, step_us: int | None
    ) -> Iterator[Traces]:
        """Yield the new traces of the window in pages, one service after the other."""
        for service in self._reported():
            own = self._filters_of(service, start_us, end_us)
            if own is not None:
                yield from self._pages_of(service, start_us, end_us, {**own, **filters}, known, step_us)

    def _pages_of(
        self,
        service: str,
        start_us: int,
        end_us: int,
        filters: Mapping[str, str],
        known: KnownTraces,
        first_step_us: int | None,
    ) -> Iterator[Traces]:
        """Yield the new traces with a span of the service in the window, from pages that are not full."""
        step_us, at_us = first_step_us or self._step_us, start_us
        while at_us < end_us:
            until_us = min(at_us + step_us, end_us)
            try:
                body = self._body(service, at_us, until_us, limit=self._page, filters=filters)
                count, found = known.new_traces(body, self._endpoint.name, fewer_than=self._page)
            except CutAnswer:
                count, found = self._page, ()
            if count >= self._page:
                if until_us - at_us <= _LEAST_STEP_US:
                    raise PlatformError(
                        f"{self._endpoint.name} has {self._page} traces of {service} within a microsecond or cannot "
                        "give one whole; sample fewer"
                    )
                step_us = max(_LEAST_STEP_US, (until_us - at_us) // 2)
                continue
            yield found
            if count < self._page // 4:
                step_us *= 2
            at_us = until_us
        if first_step_us is None:
            self._step_us = min(step_us, _FIRST_STEP_US)

    def _probe(self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]) -> Traces:
        return traces_of(self._body(service, start_us, end_us, limit=limit, filters=filters), self._endpoint.name)

    def _body(self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]) -> bytes:
        window = {"service": service, "start": str(start_us), "end": str(end_us)}
        return self._endpoint.body(PATH, {**window, "limit": str(limit), "raw": "true", **filters})


def _mapped(column: pa.ChunkedArray, service_of: Callable[[str], str | None]) -> pa.Array:
    """Return the workload of each name of a dictionary column."""
    names = column.combine_chunks()
    services = pa.array([service_of(name) for name in names.dictionary.to_pylist()], pa.string())
    return services.take(names.indices)
