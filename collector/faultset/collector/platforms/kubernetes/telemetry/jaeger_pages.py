"""Read the traces of a window from Jaeger's query API, in pages below its limit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, TruncatedResponse
from faultset.collector.platforms.kubernetes.telemetry.jaeger_spans import PATH, KnownTraces, Traces, parse_traces
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.spans import NAMESPACE_TAG, read_jaeger_spans

TRACES_PER_PAGE = 1_000
_PROBE_LIMIT = 50
_FIRST_STEP_US, _MIN_STEP_US = 12_000_000, 1


class TracePager:
    """Reads traces in pages; a page that reaches the limit is read again in smaller windows.

    Parameters
    ----------
    endpoint
        The server of the query API.
    namespace
        Only services with spans of this namespace, or without any namespace, are read; None for all.
    first_services
        Services to read first.
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
            Length of the first page's window; by default, the same as for the latest page.

        Raises
        ------
        PlatformError
            The server refuses the request, is unreachable, or has more traces in a microsecond than it returns.
        """
        by_namespace = self._build_filters(service, start_us, end_us)
        if by_namespace is not None:
            yield from self._read_pages(service, start_us, end_us, {**by_namespace, **filters}, known_traces, step_us)

    def _read_pages(
        self,
        service: str,
        start_us: int,
        end_us: int,
        filters: Mapping[str, str],
        known_traces: KnownTraces,
        first_step_us: int | None,
    ) -> Iterator[Traces]:
        """Yield the new traces with a span of the service in the window, in pages below the limit."""
        step_us, page_start_us = first_step_us or self._step_us, start_us
        while page_start_us < end_us:
            page_end_us = min(page_start_us + step_us, end_us)
            try:
                body = self._body(service, page_start_us, page_end_us, limit=self._traces_per_page, filters=filters)
                count, traces = known_traces.new_traces(body, self._endpoint.name, fewer_than=self._traces_per_page)
            except TruncatedResponse:
                count, traces = self._traces_per_page, ()
            if count >= self._traces_per_page:
                if page_end_us - page_start_us <= _MIN_STEP_US:
                    raise PlatformError(
                        f"{self._endpoint.name} has {self._traces_per_page} traces of {service} within a microsecond, "
                        "or sends an incomplete response; reduce the sampling rate"
                    )
                step_us = max(_MIN_STEP_US, (page_end_us - page_start_us) // 2)
                continue
            yield traces
            if count < self._traces_per_page // 4:
                step_us *= 2
            page_start_us = page_end_us
        if first_step_us is None:
            self._step_us = min(step_us, _FIRST_STEP_US)

    def _probe(self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]) -> Traces:
        return parse_traces(self._body(service, start_us, end_us, limit=limit, filters=filters), self._endpoint.name)

    def _body(self, service: str, start_us: int, end_us: int, *, limit: int, filters: Mapping[str, str]) -> bytes:
        window = {"service": service, "start": str(start_us), "end": str(end_us)}
        return self._endpoint.body(PATH, {**window, "limit": str(limit), "raw": "true", **filters})
