"""Check whether a cluster can run episodes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from faultset.collector.platforms.hosts import Requirement
from faultset.collector.platforms.kubernetes.chaos_mesh.installation import check_chaos_mesh
from faultset.collector.platforms.kubernetes.client import Api, build_path
from faultset.collector.platforms.kubernetes.preflight import OPERATOR_RULES, ROLE_RULES, Rule, missing_permissions
from faultset.collector.platforms.kubernetes.settings import (
    CHAOS_MESH,
    ClusterSettings,
    explain_missing_images,
    find_absent_images,
    required_images,
)
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_jaeger, find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus import (
    GAUGE_HISTOGRAM,
    SampleReader,
    read_metric_types,
)
from faultset.collector.platforms.kubernetes.telemetry.prometheus_series import Targets, scrape_interval_s
from faultset.core.errors import PlatformError
from faultset.core.printable import count_text
from faultset.datasets.telemetry_formats.kubernetes_objects import quantity

CORES_PER_EPISODE = 1.5
"""An episode uses half a core on average. At its start it uses several, which must not disturb other episodes."""
MEMORY_PER_EPISODE = 1.5 * 2**30
PODS_PER_EPISODE = 25


def episode_capacity(api: Api) -> int:
    """Return how many episodes fit on the schedulable nodes, by their allocatable resources."""
    nodes = [node for node in api.get(build_path("Node", ""))["items"] if not node["spec"].get("unschedulable")]
    return int(
        min(
            _sum_allocatable(nodes, "cpu") / CORES_PER_EPISODE,
            _sum_allocatable(nodes, "memory") / MEMORY_PER_EPISODE,
            _sum_allocatable(nodes, "pods") / PODS_PER_EPISODE,
        )
    )


def _sum_allocatable(nodes: list[dict[str, Any]], resource: str) -> float:
    return sum(quantity(node["status"]["allocatable"].get(resource, "0")) for node in nodes)


SLOW_S = 1.0
LONGEST_INTERVAL_S = 15.0
_TELEMETRY_REMEDY = "collect with --install-telemetry, or set --{}-url"
_RECENT_NS = 300_000_000_000
_ANNOTATION_LABEL = "pod_annotation_prometheus_io_scrape"


def check_cluster(
    api: Api, settings: ClusterSettings, probe: Callable[[], tuple[dict[str, str], bool]]
) -> list[Requirement]:
    """Return the result of every check, or only the first one if the cluster cannot be reached.

    Parameters
    ----------
    probe
        Calls `unsupported_needs` of the module `preflight`.
    """
    rows = [_check_access(api)]
    if rows[0].ok:
        rows += _check_permissions(api)
        rows += _check_prometheus(api, settings.prometheus_url)
        rows.append(_check_jaeger(api, settings.jaeger_url))
        rows.append(_check_images(api, settings.image))
        rows.append(_check_capacity(api))
        rows.append(_check_capabilities(probe))
        rows += check_chaos_mesh(api, needed=settings.injector == CHAOS_MESH)
    return rows


def _check_access(api: Api) -> Requirement:
    durations, version = [], ""
    try:
        for _ in range(3):
            before = time.monotonic()
            version = api.get("/version")["gitVersion"]
            durations.append(time.monotonic() - before)
    except PlatformError as error:
        return Requirement("cluster", False, str(error), "correct the kubeconfig or choose another context")
    latency_s = statistics.median(durations)
    state = f"Kubernetes {version} at {api.server}, responds in {1e3 * latency_s:.0f} ms"
    remedy = "run the collector closer to the cluster, since faults must start on time"
    return Requirement("cluster", latency_s < SLOW_S, state, remedy)


def _check_permissions(api: Api) -> list[Requirement]:
    try:
        refused: dict[Rule, list[str]] = {}
        for rule, resource, verbs in missing_permissions(api, (*ROLE_RULES, *OPERATOR_RULES)):
            refused.setdefault(rule, []).append(f"{'/'.join(verbs)} {resource}")
    except PlatformError as error:
        return [Requirement("permissions", False, str(error), "allow the user to create selfsubjectaccessreviews")]
    return [
        Requirement(
            f"may {rule.purpose}",
            rule not in refused,
            _describe_rule(rule, refused.get(rule)),
            "grant the roles of docs/how-to/kubernetes.md to the kubeconfig's user",
            needed=rule in ROLE_RULES,
        )
        for rule in (*ROLE_RULES, *OPERATOR_RULES)
    ]


def _describe_rule(rule: Rule, refused: list[str] | None) -> str:
    if refused is None:
        return f"{', '.join(rule.resources)}: all verbs"
    consequence = "" if rule in ROLE_RULES else "; applications with an operator cannot be deployed"
    return f"may not {', '.join(refused)}{consequence}"


def _check_prometheus(api: Api, url: str | None) -> list[Requirement]:
    try:
        endpoint, choice = find_prometheus(api, url)
    except PlatformError as error:
        return [Requirement("Prometheus", False, str(error), _TELEMETRY_REMEDY.format("prometheus"))]
    reader = SampleReader(endpoint)
    kube_state = "install kube-state-metrics and have Prometheus scrape it"
    return [
        Requirement("Prometheus", True, choice),
        _check_interval(endpoint),
        _check_containers(reader),
        _check_network(reader),
        _check_series(reader, "kube-state-metrics", "kube_pod_status_phase", kube_state),
        _check_pods(endpoint),
        _check_native_histograms(endpoint, reader),
    ]


def _check_interval(endpoint: Endpoint) -> Requirement:
    targets = Targets()
    targets.update(endpoint)
    try:
        interval_s = scrape_interval_s(endpoint, targets)
    except PlatformError as error:
        return Requirement("scrape interval", False, str(error), "allow Prometheus to show its configuration")
    remedy = f"scrape at least every {LONGEST_INTERVAL_S:g} s, preferably every 5 s; faults last only a minute or two"
    return Requirement("scrape interval", interval_s <= LONGEST_INTERVAL_S, f"{interval_s:g} s", remedy)


def _check_containers(reader: SampleReader) -> Requirement:
    cpu = "container_cpu_usage_seconds_total"
    remedy = "have Prometheus scrape /metrics/cadvisor of the kubelets"
    row = _check_series(reader, "container metrics", f'{cpu}{{pod!="",container!="",container!="POD"}}', remedy)
    if row.ok:
        return row
    pod_row = _check_series(reader, "container metrics", f'{cpu}{{pod!=""}}', remedy)
    if pod_row.ok:
        note = " of pods but none of containers, since cAdvisor does not find the container runtime"
        return replace(pod_row, found=pod_row.found + note)
    return pod_row


def _check_network(reader: SampleReader) -> Requirement:
    remedy = "set the kubelets' --containerd, since cAdvisor needs the container runtime for network metrics"
    row = _check_series(reader, "network metrics", 'container_network_receive_bytes_total{pod!=""}', remedy)
    note = "" if row.ok else "; episodes run, but without bytes, packets and drops of pods"
    return replace(row, found=row.found + note, needed=False)


def _check_series(reader: SampleReader, check: str, selector: str, remedy: str) -> Requirement:
    try:
        values = reader.instant(f"count({selector})")
    except PlatformError as error:
        return Requirement(check, False, str(error), remedy)
    count = int(values[0][1]) if values else 0
    return Requirement(check, count > 0, f"{count} series" if count else "none", remedy)


def _check_pods(endpoint: Endpoint) -> Requirement:
    remedy = "add a scrape job for pods with the annotation prometheus.io/scrape, or collect with --install-telemetry"
    try:
        ok = _ANNOTATION_LABEL in endpoint.get("/api/v1/status/config")["data"]["yaml"]
    except (PlatformError, KeyError, TypeError) as error:
        return Requirement("metrics of the services", False, str(error), remedy)
    state = "annotated pods are scraped" if ok else "no scrape job for annotated pods"
    return Requirement("metrics of the services", ok, state, remedy)


def _check_native_histograms(endpoint: Endpoint, reader: SampleReader) -> Requirement:
    check, now_ns = "native histograms", time.time_ns()
    try:
        names = reader.families(['__name__!=""'], now_ns - _RECENT_NS, now_ns)
    except PlatformError as error:
        return Requirement(check, False, str(error), "allow Prometheus to list its metric names", needed=False)
    types = read_metric_types(endpoint)
    native = [name for name in names if types.declares_histogram(name)]
    gauges = [name for name in native if types.holds_gauges(name)]
    state = f"{len(native) - len(gauges)} become buckets, sum and count" if len(native) > len(gauges) else "none"
    if gauges:
        state += f"; {', '.join(gauges)} will have no rows: {GAUGE_HISTOGRAM}"
    return Requirement(check, not gauges, state, "export current values as gauges", needed=False)


def _check_jaeger(api: Api, url: str | None) -> Requirement:
    try:
        return Requirement("Jaeger", True, find_jaeger(api, url)[2])
    except PlatformError as error:
        return Requirement("Jaeger", False, str(error), _TELEMETRY_REMEDY.format("jaeger"))


def _check_images(api: Api, repository: str) -> Requirement:
    try:
        required = required_images(repository)
        absent = find_absent_images(api.get("/api/v1/nodes")["items"], required)
    except PlatformError as error:
        return Requirement("images", False, str(error), "allow the user to list nodes")
    if absent:
        return Requirement("images", False, f"{len(absent)} of {len(required)} missing", explain_missing_images(absent))
    return Requirement("images", True, f"{len(required)} on every node", "")


def _check_capabilities(probe: Callable[[], tuple[dict[str, str], bool]]) -> Requirement:
    try:
        unsupported, privileged = probe()
    except PlatformError as error:
        return Requirement("access to pods", False, str(error), "fix the problems above, then run doctor again")
    state = "an agent on every node" if privileged else "a container in every pod, since nodes do not allow agents"
    state += "".join(f"; {reason}" for reason in dict.fromkeys(unsupported.values()))
    remedy = "see docs/how-to/kubernetes.md for what faults need; --faults all skips unsupported faults"
    return Requirement("access to pods", not unsupported, state, remedy, needed=False)


def _check_capacity(api: Api) -> Requirement:
    check, remedy = "capacity of the nodes", "add a node, or use nodes with more memory or cores"
    try:
        count = episode_capacity(api)
    except PlatformError as error:
        return Requirement(check, False, str(error), remedy)
    return Requirement(check, count >= 1, f"for {count_text(count, 'concurrent episode')}", remedy)
