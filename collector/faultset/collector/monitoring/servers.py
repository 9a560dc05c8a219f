"""Fetch the telemetry of a past window from all monitoring servers of a system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from faultset.collector.monitoring.queries import (
    Advance,
    Selection,
    fetch_jaeger_traces,
    fetch_log_lines,
    fetch_metrics,
    fetch_objects,
    fetch_tempo_traces,
)
from faultset.collector.monitoring.spool import RateLimiter, Spool, SpooledEndpoint
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_jaeger_query, find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, Parameters, UrlEndpoint
from faultset.core.errors import DataError, UsageError
from faultset.core.output import Progress
from faultset.core.printable import count_text
from faultset.datasets.format.schemas import LONGEST_VIEW_NS

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
    """The API server of a cluster.

    Parameters
    ----------
    api
        The connection.
    """

    def __init__(self, api: Api) -> None:
        self.name = f"the cluster at {api.server}"
        self._api = api

    def body(self, path: str, params: Parameters | None = None) -> bytes:
        """Return the body of the response; raise PlatformError if the request fails."""
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
