"""Create the telemetry sources of an episode on a cluster."""

from __future__ import annotations

from pathlib import Path

from faultset.collector.platforms.kubernetes.load_pod import LoadPod, LoadRequests
from faultset.collector.platforms.kubernetes.telemetry.discovery import TelemetryServers
from faultset.collector.platforms.kubernetes.telemetry.jaeger_source import JaegerSource
from faultset.collector.platforms.kubernetes.telemetry.prometheus_source import PrometheusSource
from faultset.collector.platforms.kubernetes.watches import Observer
from faultset.collector.platforms.telemetry_sources import EventSource, LogSource, ObjectSource
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec


def cluster_sources(
    app: AppSpec, servers: TelemetryServers, namespace: str, observer: Observer, load: LoadPod, *, logs: Path
) -> dict[str, Source]:
    """Return the sources of an application on a cluster by table name.

    Parameters
    ----------
    servers
        The Prometheus and Jaeger servers.
    namespace
        The application's namespace.
    observer
        Provides events, objects, and the workloads of pods and objects.
    logs
        Folder of the received log lines.
    """
    reported_names = app.deployed.reported if app.deployed else {}

    def service_of_reported(reported: str) -> str | None:
        name = reported_names.get(reported, reported)
        return name if name in app.services else None

    sources: list[Source] = [
        LogSource(logs, observer.service_of_pod),
        EventSource(observer),
        ObjectSource(observer.changes),
        LoadRequests(load),
        PrometheusSource(
            servers.prometheus,
            namespace,
            service_of_pod=observer.service_of_pod,
            service_of_object=observer.service_of,
            pods_seen=observer.pods_seen,
        ),
        JaegerSource(
            servers.jaeger,
            namespace,
            tuple(app.services),
            service_of_pod=observer.service_of_pod,
            service_of_reported=service_of_reported,
        ),
    ]
    return {source.table: source for source in sources}
