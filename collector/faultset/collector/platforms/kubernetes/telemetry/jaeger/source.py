"""Spans of an application on a cluster, from a Jaeger server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.platforms.kubernetes.telemetry.endpoints import CutAnswer, Endpoint
from faultset.collector.platforms.kubernetes.telemetry.jaeger.spans import NAMESPACE_TAG, Sent, sent_spans
from faultset.collector.sources.span_store import SpanStore
from faultset.core.errors import PlatformError

TRACES_PER_PAGE = 1_000
_PROBE = 50
_NOTHING = "nothing"
_FIRST_STEP_US, _LEAST_STEP_US = 12_000_000, 1
_TAIL_NS = 10_000_000_000
_SETTLED_NS = 20_000_000_000
_TIMEOUT_S, _PAUSE_S = 15.0, 2.0
_US = 1_000
_READY_US = 60_000_000


class JaegerSource:
    """The table of spans: every span that reached Jaeger, of finished and unfinished traces, once.

    Several episodes may send the same service names to one server. Spans are told apart by the namespace they name,
    else by their pod, else, where they name neither, by their service's name alone; `said` tells when that was so.

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
        self.said: tuple[str, ...] = ()
        """Sentences on the last snapshot: what could not be told apart, what Jaeger changed."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the spans that began in `[start_ns, end_ns)` in order of their start, to the microsecond.

        Processes send their spans a second or more after they end. A window that has only just passed is read until
        two answers for its end agree, for a while at most.

        Raises
        ------
        PlatformError
            The server refuses, has gone, or has more traces in a microsecond than it gives.
        """
        reading = _Reading(start_ns, end_ns)
        tail_ns = max(start_ns, end_ns - _TAIL_NS) if time.time_ns() < end_ns + _SETTLED_NS else end_ns
        self._read(reading, start_ns, tail_ns)
        deadline = time.monotonic() + _TIMEOUT_S
        before = -1
        while tail_ns < end_ns:
            self._read(reading, tail_ns, end_ns)
            if len(reading.store) == before or time.monotonic() > deadline:
                break
            before = len(reading.store)
            self._sleep(_PAUSE_S)
        self.said = reading.sentences()
        table = self._with_services(reading.store.window(start_ns, end_ns).table({}))
        yield from table.to_batches(max_chunksize=65_536)

    def close(self) -> None:
        """Nothing is held; may be called twice."""

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

    def _read(self, reading: _Reading, start_ns: int, end_ns: int) -> None:
        start_us, end_us = start_ns // _US, -(-end_ns // _US)
        if start_us >= end_us:
            return
        for service in self._reported():
            tags = self._tags(service, start_us, end_us)
            if tags == _NOTHING:
                continue
            for page in self._pages(service, start_us, end_us, tags):
                for sent in sent_spans(reading.news(page)):
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

    def _tags(self, service: str, start_us: int, end_us: int) -> str | None:
        """Return the tags that leave strangers out already at the server, if the service's processes name them.

        A service without a span in the window needs no further question.
        """
        try:
            if self._traces(service, start_us, end_us, limit=1, tags=self._own_tags()):
                return self._own_tags()
            traces = self._traces(service, start_us, end_us, limit=_PROBE)
        except CutAnswer:
            return None
        named = [one.namespace is not None for one in sent_spans(traces) if one.row.reported_service == service]
        return _NOTHING if all(named) else None

    def _own_tags(self) -> str:
        return json.dumps({NAMESPACE_TAG: self._namespace})

    def _pages(
        self, service: str, start_us: int, end_us: int, tags: str | None
    ) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the traces with a span of the service in the window, in pages that are not full."""
        step_us, at_us = self._step_us, start_us
        while at_us < end_us:
            until_us = min(at_us + step_us, end_us)
            try:
                found = self._traces(service, at_us, until_us, limit=self._page, tags=tags)
            except CutAnswer:
                found = None
            if found is None or len(found) >= self._page:
                if until_us - at_us <= _LEAST_STEP_US:
                    raise PlatformError(
                        f"{self._endpoint.name} has {self._page} traces of {service} within a microsecond or cannot "
                        "give one whole; sample fewer"
                    )
                step_us = max(_LEAST_STEP_US, (until_us - at_us) // 2)
                continue
            yield found
            if len(found) < self._page // 4:
                step_us *= 2
            at_us = until_us
        self._step_us = min(step_us, _FIRST_STEP_US)

    def _traces(
        self, service: str, start_us: int, end_us: int, *, limit: int, tags: str | None = None
    ) -> list[Mapping[str, Any]]:
        params = {"service": service, "start": str(start_us), "end": str(end_us), "limit": str(limit), "raw": "true"}
        if tags is not None:
            params["tags"] = tags
        answer = self._endpoint.get("/api/traces", params)
        if answer.get("errors"):
            raise PlatformError(f"{self._endpoint.name} refuses the traces of {service}: {answer['errors'][0]}")
        return answer.get("data") or []


def _mapped(column: pa.ChunkedArray, service_of: Callable[[str], str | None]) -> pa.Array:
    """Return the workload of each name of a dictionary column."""
    names = column.combine_chunks()
    services = pa.array([service_of(name) for name in names.dictionary.to_pylist()], pa.string())
    return services.take(names.indices)


class _Reading:
    """What one snapshot has read so far; a trace comes again with every service in it."""

    def __init__(self, start_ns: int, end_ns: int):
        self.store = SpanStore()
        self._start_ns, self._end_ns = start_ns, end_ns
        self._sizes: dict[str, int] = {}
        self._seen: set[tuple[bytes, bytes]] = set()
        self._nameless: set[str] = set()
        self._shifted = 0

    def news(self, traces: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
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
        if key in self._seen or not self._start_ns <= row.start_ns < self._end_ns:
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
