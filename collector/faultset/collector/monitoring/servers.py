"""Fetch the telemetry of a past window from the APIs of monitoring servers, page by page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faultset.collector.monitoring.spool import RateLimiter, Spool, SpooledEndpoint, count_items
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_jaeger_query, find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import (
    Endpoint,
    Parameters,
    TruncatedResponse,
    UrlEndpoint,
)
from faultset.collector.platforms.kubernetes.telemetry.jaeger import KnownTraces, TracePager
from faultset.collector.platforms.kubernetes.telemetry.prometheus import SampleReader, batch_families, quote
from faultset.collector.platforms.kubernetes.telemetry.prometheus_series import carries_signal
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.core.output import Progress
from faultset.core.printable import count_text
from faultset.datasets.format.schemas import LONGEST_VIEW_NS
from faultset.datasets.imports.telemetry.naming import guess_role
from faultset.datasets.metrics.roles import builtin_catalogue

LINES_PER_PAGE = 5_000
"""Loki's default limit (`max_entries_limit_per_query`)."""
_TRACES_PER_PAGE = 500
_US_NS, _SECOND_NS = 1_000, 1_000_000_000
_FIRST_STEP_NS = 60 * _SECOND_NS
_OBJECT_PATHS = (
    "/api/v1/{}pods", "/api/v1/{}services", "/apis/apps/v1/{}deployments", "/apis/apps/v1/{}statefulsets",
    "/apis/apps/v1/{}daemonsets", "/apis/apps/v1/{}replicasets", "/api/v1/{}events",
)  # fmt: skip
_OBJECTS_PER_PAGE = 500
_JAEGER_SERVICES = re.compile(r"jaeger(-all-in-one|-query|-collector)?")
"""Names of the services under which Jaeger reports spans of itself."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The telemetry to record.

    Attributes
    ----------
    start_ns, end_ns
        The window, half-open, in UTC nanoseconds.
    namespace
        Kubernetes namespace of metrics, spans, log lines and objects; None for all.
    matchers
        Additional PromQL label matchers, such as `job="shop"`.
    roles
        Metric roles to record; empty for all.
    log_selector
        LogQL stream selector; by default all streams of the namespace.
    """

    start_ns: int
    end_ns: int
    namespace: str | None = None
    matchers: str | None = None
    roles: tuple[str, ...] = ()
    log_selector: str | None = None


Advance = Callable[[float], None]
"""Called with the share of a server's telemetry that has been fetched, from 0 to 1."""


def fetch_metrics(endpoint: Endpoint, selection: Selection, advance: Advance) -> int:
    """Fetch all samples of the selected metrics with their scrape times; return the number of metrics."""
    endpoint.get("/api/v1/metadata")
    reader = SampleReader(endpoint)
    jobs: list[tuple[str, Sequence[str]]] = []
    for matcher in _build_metric_matchers(selection):
        families = reader.families([matcher], selection.start_ns, selection.end_ns)
        names = [name for name in families if carries_signal(name) and _has_role(name, selection.roles)]
        jobs += [(matcher, batch) for batch in batch_families(names)]
    length_ns = selection.end_ns - selection.start_ns
    for number, (matcher, batch) in enumerate(jobs):
        for piece in reader.pieces(matcher, batch, selection.start_ns, selection.end_ns):
            advance((number + (int(piece.times[-1]) - selection.start_ns) / length_ns) / len(jobs))
    advance(1.0)
    return len({name for _, batch in jobs for name in batch})


def _build_metric_matchers(selection: Selection) -> list[str]:
    """Return selectors without braces; Prometheus renames a conflicting `namespace` label of a target."""
    others = [selection.matchers] if selection.matchers else []
    if not selection.namespace:
        return [",".join(others) or '__name__!=""']
    labels = ("namespace", "exported_namespace")
    return [",".join([f"{label}={quote(selection.namespace)}", *others]) for label in labels]


def _has_role(metric: str, roles: Sequence[str]) -> bool:
    if not roles:
        return True
    entry = builtin_catalogue().find(metric)
    return (entry.role if entry is not None else guess_role(metric, "gauge")["role"]) in roles


def fetch_jaeger_traces(endpoint: Endpoint, selection: Selection, advance: Advance) -> int:
    """Fetch all traces with a span in the window; return the number of services."""
    pager, known_traces = TracePager(endpoint, selection.namespace), KnownTraces()
    services = [name for name in pager.list_services() if not _JAEGER_SERVICES.fullmatch(name)]
    start_us, end_us = selection.start_ns // _US_NS, -(-selection.end_ns // _US_NS)
    for number, service in enumerate(services):
        for _ in pager.service_pages(service, start_us, end_us, known_traces):
            advance(number / len(services))
    advance(1.0)
    return len(services)


def fetch_tempo_traces(endpoint: Endpoint, selection: Selection, advance: Advance) -> int:
    """Search the window for traces and fetch each by its id; return their number."""
    query = f"{{resource.k8s.namespace.name={quote(selection.namespace)}}}" if selection.namespace else "{}"
    traces: dict[str, None] = {}
    for matches in _search_tempo(endpoint, selection, query):
        traces |= dict.fromkeys(str(item["traceID"]) for item in matches)
    for number, trace in enumerate(traces):
        endpoint.body(f"/api/traces/{trace}")
        advance((number + 1) / len(traces))
    advance(1.0)
    return len(traces)


def _search_tempo(endpoint: Endpoint, selection: Selection, query: str) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the traces of consecutive windows of whole seconds; halve a window whose response reaches the limit."""
    at_s, end_s = selection.start_ns // _SECOND_NS, -(-selection.end_ns // _SECOND_NS)
    step_s = 60
    while at_s < end_s:
        window_end_s = min(at_s + step_s, end_s)
        window = {"start": str(at_s), "end": str(window_end_s), "limit": str(_TRACES_PER_PAGE), "q": query}
        matches = endpoint.get("/api/search", window).get("traces") or []
        if len(matches) >= _TRACES_PER_PAGE:
            if window_end_s - at_s == 1:
                raise PlatformError(
                    f"{endpoint.name} has {_TRACES_PER_PAGE} traces or more within a second; reduce the sampling rate "
                    "or give a --namespace"
                )
            step_s = max(1, (window_end_s - at_s) // 2)
            continue
        yield matches
        at_s, step_s = window_end_s, min(2 * step_s, 3_600) if len(matches) < _TRACES_PER_PAGE // 4 else step_s


def fetch_log_lines(endpoint: Endpoint, selection: Selection, advance: Advance) -> int:
    """Fetch all lines of the selected streams; return their number."""
    query = selection.log_selector or (
        f"{{namespace={quote(selection.namespace)}}}"
        if selection.namespace
        else _build_any_stream_selector(endpoint, selection)
    )
    at_ns, step_ns, lines = selection.start_ns, _FIRST_STEP_NS, 0
    while at_ns < selection.end_ns and query:
        window_end_ns = min(at_ns + step_ns, selection.end_ns)
        window = {"query": query, "start": str(at_ns), "end": str(window_end_ns), "limit": str(LINES_PER_PAGE)}
        try:
            count = count_items(endpoint.get("/loki/api/v1/query_range", {**window, "direction": "forward"}))
        except TruncatedResponse:
            count = LINES_PER_PAGE
        if count >= LINES_PER_PAGE:
            if window_end_ns - at_ns == 1:
                raise PlatformError(
                    f"{endpoint.name} has {LINES_PER_PAGE} lines or more within a nanosecond or truncated its "
                    "response; choose fewer streams with --log-selector"
                )
            step_ns = max(1, (window_end_ns - at_ns) // 2)
            continue
        lines += count
        at_ns, step_ns = window_end_ns, 2 * step_ns if count < LINES_PER_PAGE // 4 else step_ns
        advance((at_ns - selection.start_ns) / (selection.end_ns - selection.start_ns))
    advance(1.0)
    return lines


def _build_any_stream_selector(endpoint: Endpoint, selection: Selection) -> str:
    """Return a selector of all streams that have a common label, which Loki requires; "" without streams."""
    window = {"start": str(selection.start_ns), "end": str(selection.end_ns)}
    labels = endpoint.get("/loki/api/v1/labels", window).get("data") or []
    preferred = ("service_name", "namespace", "job", "app")
    name = next((name for name in preferred if name in labels), labels[0] if labels else "")
    return f'{{{name}=~".+"}}' if name else ""


def fetch_objects(endpoint: Endpoint, selection: Selection, advance: Advance) -> int:
    """Fetch the current objects and the stored events of a cluster; return their number."""
    scope = f"namespaces/{selection.namespace}/" if selection.namespace else ""
    count = 0
    for number, path in enumerate(_OBJECT_PATHS):
        token = ""
        while True:
            params = {"limit": str(_OBJECTS_PER_PAGE)} | ({"continue": token} if token else {})
            response = json.loads(endpoint.body(path.format(scope), params))
            count += len(response.get("items") or ())
            token = (response.get("metadata") or {}).get("continue") or ""
            if not token:
                break
        advance((number + 1) / len(_OBJECT_PATHS))
    return count


SPOOL_SUFFIX = ".answers"
_PERCENT = 100
_FETCHERS: dict[str, tuple[str, str, Callable[[Endpoint, Selection, Advance], int]]] = {
    "prometheus": ("Prometheus", "metrics", fetch_metrics),
    "jaeger": ("Jaeger", "services with spans", fetch_jaeger_traces),
    "tempo": ("Tempo", "traces", fetch_tempo_traces),
    "loki": ("Loki", "log lines", fetch_log_lines),
}


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Addresses of the servers to record from; None means that a server is not used.

    Attributes
    ----------
    prometheus, jaeger, tempo, loki
        A URL. Prometheus and Jaeger may also be NAMESPACE/SERVICE:PORT in the cluster of the kubeconfig.
    uses_cluster
        Whether to record objects and events of the cluster of the kubeconfig.
    context
        Context of the kubeconfig.
    tenant
        Tenant of Loki, Tempo and Mimir, sent as X-Scope-OrgID.
    """

    prometheus: str | None = None
    jaeger: str | None = None
    tempo: str | None = None
    loki: str | None = None
    uses_cluster: bool = False
    context: str | None = None
    tenant: str | None = None


class ClusterEndpoint(Endpoint):
    """The API server of a cluster."""

    def __init__(self, api: Api) -> None:
        self.name = f"the cluster at {api.server}"
        self._api = api

    def body(self, path: str, params: Parameters | None = None) -> bytes:
        return self._api.call("GET", path, query=params)


def check_window(start_ns: int, end_ns: int, now_ns: int) -> None:
    """Raise UsageError unless a window is in the past and at most 31 days long."""
    if end_ns <= start_ns:
        raise UsageError("--to must be after --from; give a later time")
    if end_ns > now_ns:
        raise UsageError("--to must not be in the future; give an earlier time")
    if end_ns - start_ns > LONGEST_VIEW_NS:
        raise UsageError("the window from --from to --to must be at most 31 days long; give a later --from")


def fetch_answers(
    servers: Servers,
    selection: Selection,
    folder: Path,
    *,
    requests_per_s: float,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> Sequence[Path]:
    """Fetch all telemetry of a window into a folder, and return the folders to import.

    To continue after an interruption, repeat the call: responses in the folder are not requested again.

    Parameters
    ----------
    folder
        Spool of responses; may exist from an earlier call with the same arguments.
    requests_per_s
        Maximum rate of requests to all servers together, including retries.
    progress
        Called with the finished percentage and 100.
    announce
        Called with a line of text about each server.

    Raises
    ------
    UsageError
        An address is invalid, or `folder` contains responses to another request.
    PlatformError
        A server refuses a request or is unreachable.
    DataError
        The window has no telemetry.
    """
    spool = Spool(folder, {"selection": asdict(selection), "servers": _describe_servers(servers)})
    endpoints = _open_endpoints(servers, RateLimiter(requests_per_s))
    percent = 0

    def advance(number: int, share: float) -> None:
        nonlocal percent
        percent = max(percent, int(_PERCENT * (number + share) / len(endpoints)))
        if progress is not None:
            progress(percent, _PERCENT)

    summaries = []
    for number, (endpoint, noun, fetch, subfolder) in enumerate(endpoints):
        spooled = SpooledEndpoint(endpoint, spool, folder=subfolder)
        count = fetch(spooled, selection, lambda share, number=number: advance(number, share))
        summaries.append(f"{count} {noun} at {endpoint.name}")
        if announce is not None:
            announce(summaries[-1])
    if announce is not None:
        announce(f"{count_text(spool.requested, 'response')} fetched, {spool.reused} reused from {folder}")
    if all(text.startswith("0 ") for text in summaries):
        raise DataError(f"the window has no telemetry ({', '.join(summaries)}); check the times and the --namespace")
    return spool.data_folders


def _describe_servers(servers: Servers) -> dict[str, object]:
    """Return the servers without the credentials that their addresses may contain."""
    values = asdict(servers)
    for name in _FETCHERS:
        scheme, separator, rest = (values[name] or "").rpartition("://")
        values[name] = scheme + separator + rest.rpartition("@")[2]
    return values


_Job = tuple[Endpoint, str, Callable[[Endpoint, Selection, Advance], int], str]


def _open_endpoints(servers: Servers, limiter: RateLimiter) -> list[_Job]:
    addresses = {name: str(getattr(servers, name)) for name in _FETCHERS if getattr(servers, name)}
    cluster_servers = [name for name, address in addresses.items() if "://" not in address]
    for name in cluster_servers:
        if name not in ("prometheus", "jaeger"):
            raise UsageError(
                f"--{name} must be a URL such as http://{name}.example:3100, got {addresses[name]}; forward its port "
                "with kubectl port-forward"
            )
    needs_api = servers.uses_cluster or bool(cluster_servers)
    api = Api(context=servers.context, before_request=limiter) if needs_api else None
    jobs: list[_Job] = []
    for name, address in addresses.items():
        title, noun, fetch = _FETCHERS[name]
        if api is not None and name in cluster_servers:
            endpoint = find_prometheus(api, address)[0] if name == "prometheus" else find_jaeger_query(api, address)
        else:
            endpoint = UrlEndpoint(
                address,
                kind=title,
                token_variable=f"FAULTSET_{name.upper()}_TOKEN",
                headers={"X-Scope-OrgID": servers.tenant} if servers.tenant else {},
                before_request=limiter,
            )
        jobs.append((endpoint, noun, fetch, ""))
    if api is not None and servers.uses_cluster:
        jobs.append((ClusterEndpoint(api), "objects and events", fetch_objects, "kubernetes"))
    if not jobs:
        raise UsageError("nothing to record from; give --prometheus, --jaeger, --tempo, --loki or --kubernetes")
    return jobs
