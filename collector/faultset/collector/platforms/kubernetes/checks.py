"""What a cluster must have to run episodes, checked one by one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from faultset.collector.platforms.hosts import Requirement
from faultset.collector.platforms.kubernetes.chaos_mesh.installation import chaos_mesh_rows
from faultset.collector.platforms.kubernetes.client import Api, path_of
from faultset.collector.platforms.kubernetes.images import absent_images, missing_images_sentence, required_images
from faultset.collector.platforms.kubernetes.permissions import OPERATOR_RULES, ROLE_RULES, Rule, missing_permissions
from faultset.collector.platforms.kubernetes.settings import CHAOS_MESH, ClusterSettings
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_jaeger, find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus_samples import (
    MetricTypes,
    SampleReader,
    Targets,
    scrape_interval_s,
)
from faultset.collector.platforms.kubernetes.telemetry.prometheus_source import GAUGE_HISTOGRAM
from faultset.collector.platforms.objects import quantity
from faultset.core.errors import PlatformError

CORES_PER_EPISODE = 1.5
"""Half a core while it runs; its start takes several for seconds, in which the episodes beside it must stay healthy."""
MEMORY_PER_EPISODE = 1.5 * 2**30
PODS_PER_EPISODE = 25


def episode_capacity(api: Api) -> int:
    """Return how many episodes the schedulable nodes can carry, going by what they offer to pods."""
    nodes = [node for node in api.get(path_of("Node", ""))["items"] if not node["spec"].get("unschedulable")]
    return int(
        min(
            _offered(nodes, "cpu") / CORES_PER_EPISODE,
            _offered(nodes, "memory") / MEMORY_PER_EPISODE,
            _offered(nodes, "pods") / PODS_PER_EPISODE,
        )
    )


def _offered(nodes: list[dict[str, Any]], resource: str) -> float:
    return sum(quantity(node["status"]["allocatable"].get(resource, "0")) for node in nodes)


SLOW_S = 1.0
LONGEST_INTERVAL_S = 15.0
_RECENT_NS = 300_000_000_000
_ANNOTATION = "pod_annotation_prometheus_io_scrape"


def check_cluster(
    api: Api, settings: ClusterSettings, probe: Callable[[], tuple[dict[str, str], bool]]
) -> list[Requirement]:
    """Return a row for each requirement.

    A cluster that cannot be reached has only the first row.

    Parameters
    ----------
    probe
        Finds out what the cluster cannot do of what faults need; see `unsupported_needs`.
    """
    rows = [_access(api)]
    if rows[0].ok:
        rows += _permissions(api)
        rows += _prometheus(api, settings.prometheus_url)
        rows.append(_jaeger(api, settings.jaeger_url))
        rows.append(_images(api, settings.image))
        rows.append(_capacity(api))
        rows.append(_capabilities(probe))
        rows += chaos_mesh_rows(api, needed=settings.injector == CHAOS_MESH)
    return rows


def _access(api: Api) -> Requirement:
    took, version = [], ""
    try:
        for _ in range(3):
            before = time.monotonic()
            version = api.get("/version")["gitVersion"]
            took.append(time.monotonic() - before)
    except PlatformError as error:
        return Requirement("cluster", False, str(error), "correct the kubeconfig, or choose another context")
    latency_s = statistics.median(took)
    found = f"Kubernetes {version} at {api.server}, answers in {1e3 * latency_s:.0f} ms"
    return Requirement("cluster", latency_s < SLOW_S, found, "work closer to the cluster: faults must be made on time")


def _permissions(api: Api) -> list[Requirement]:
    try:
        refused: dict[Rule, list[str]] = {}
        for rule, resource, verbs in missing_permissions(api, (*ROLE_RULES, *OPERATOR_RULES)):
            refused.setdefault(rule, []).append(f"{'/'.join(verbs)} {resource}")
    except PlatformError as error:
        return [Requirement("permissions", False, str(error), "let the user create selfsubjectaccessreviews")]
    return [
        Requirement(
            f"may {rule.purpose}",
            rule not in refused,
            _allowed(rule, refused.get(rule)),
            "grant the roles of docs/how-to/kubernetes.md to the kubeconfig's user",
            needed=rule in ROLE_RULES,
        )
        for rule in (*ROLE_RULES, *OPERATOR_RULES)
    ]


def _allowed(rule: Rule, refused: list[str] | None) -> str:
    if refused is None:
        return f"{', '.join(rule.resources)}: all verbs"
    lost = "" if rule in ROLE_RULES else "; applications with an operator cannot be deployed"
    return f"may not {', '.join(refused)}{lost}"


def _prometheus(api: Api, url: str | None) -> list[Requirement]:
    try:
        endpoint, why = find_prometheus(api, url)
    except PlatformError as error:
        return [
            Requirement(
                "Prometheus", False, str(error), "collect with --install-telemetry, or name it: --prometheus-url"
            )
        ]
    reader = SampleReader(endpoint)
    return [
        Requirement("Prometheus", True, why, ""),
        _interval(endpoint),
        _containers(reader),
        _network(reader),
        _series(
            reader,
            "kube-state-metrics",
            "kube_pod_status_phase",
            "install kube-state-metrics and let Prometheus scrape it",
        ),
        _pods_are_scraped(endpoint),
        _native_histograms(endpoint, reader),
    ]


def _interval(endpoint: Endpoint) -> Requirement:
    targets = Targets()
    targets.learn(endpoint)
    try:
        interval_s = scrape_interval_s(endpoint, targets)
    except PlatformError as error:
        return Requirement("scrape interval", False, str(error), "let Prometheus show its configuration")
    return Requirement(
        "scrape interval",
        interval_s <= LONGEST_INTERVAL_S,
        f"{interval_s:g} s",
        f"scrape every {LONGEST_INTERVAL_S:g} s at least, better every 5 s: faults last for a minute or two",
    )


def _containers(reader: SampleReader) -> Requirement:
    cpu = "container_cpu_usage_seconds_total"
    remedy = "let Prometheus scrape /metrics/cadvisor of the kubelets"
    row = _series(reader, "container metrics", f'{cpu}{{pod!="",container!="",container!="POD"}}', remedy)
    if row.ok:
        return row
    of_pods = _series(reader, "container metrics", f'{cpu}{{pod!=""}}', remedy)
    if of_pods.ok:
        lost = " of pods, none of their containers: cAdvisor does not find the container runtime"
        return replace(of_pods, found=of_pods.found + lost)
    return of_pods


def _network(reader: SampleReader) -> Requirement:
    remedy = "let the kubelets' cAdvisor find the container runtime (kubelet --containerd); it has no network without"
    row = _series(reader, "network metrics", 'container_network_receive_bytes_total{pod!=""}', remedy)
    lost = "" if row.ok else "; episodes run, but their views have no bytes, packets and drops of pods"
    return replace(row, found=row.found + lost, needed=False)


def _series(reader: SampleReader, check: str, selector: str, remedy: str) -> Requirement:
    try:
        found = reader.instant(f"count({selector})")
    except PlatformError as error:
        return Requirement(check, False, str(error), remedy)
    count = int(found[0][1]) if found else 0
    return Requirement(check, count > 0, f"{count} series" if count else "none", remedy)


def _pods_are_scraped(endpoint: Endpoint) -> Requirement:
    remedy = "add a scrape job for pods with the annotation prometheus.io/scrape, or collect with --install-telemetry"
    try:
        ok = _ANNOTATION in endpoint.get("/api/v1/status/config")["data"]["yaml"]
    except (PlatformError, KeyError, TypeError) as error:
        return Requirement("metrics of the services", False, str(error), remedy)
    return Requirement("metrics of the services", ok, "annotated pods are scraped" if ok else "no job for them", remedy)


def _native_histograms(endpoint: Endpoint, reader: SampleReader) -> Requirement:
    check, now_ns = "native histograms", time.time_ns()
    try:
        names = reader.families(['__name__!=""'], now_ns - _RECENT_NS, now_ns)
    except PlatformError as error:
        return Requirement(check, False, str(error), "let Prometheus list the names of its metrics", needed=False)
    types = MetricTypes.asked(endpoint)
    native = [name for name in names if types.declares_histogram(name)]
    gauges = [name for name in native if types.holds_gauges(name)]
    found = f"{len(native) - len(gauges)} become buckets, sum and count" if len(native) > len(gauges) else "none"
    if gauges:
        found += f"; {', '.join(gauges)} will have no rows: {GAUGE_HISTOGRAM}"
    return Requirement(check, not gauges, found, "export present values as gauges", needed=False)


def _jaeger(api: Api, url: str | None) -> Requirement:
    remedy = "collect with --install-telemetry, or name it: --jaeger-url"
    return _tried("Jaeger", lambda: (True, find_jaeger(api, url)[2]), remedy)


def _images(api: Api, repository: str) -> Requirement:
    try:
        wanted = required_images(repository)
        absent = absent_images(api.get("/api/v1/nodes")["items"], wanted)
    except PlatformError as error:
        return Requirement("images", False, str(error), "let the user list nodes")
    if absent:
        return Requirement("images", False, f"{len(absent)} of {len(wanted)} missing", missing_images_sentence(absent))
    return Requirement("images", True, f"{len(wanted)} on every node", "")


def _capabilities(probe: Callable[[], tuple[dict[str, str], bool]]) -> Requirement:
    try:
        unsupported, privileged = probe()
    except PlatformError as error:
        return Requirement("access to pods", False, str(error), "fix what the rows above name, then run doctor again")
    found = "an agent on every node" if privileged else "a container in every pod, for no agent may run on the nodes"
    found += "".join(f"; {reason}" for reason in dict.fromkeys(unsupported.values()))
    remedy = "--faults all leaves out what cannot be made; docs/how-to/kubernetes.md says what faults need"
    return Requirement("access to pods", not unsupported, found, remedy, needed=False)


def _capacity(api: Api) -> Requirement:
    def look() -> tuple[bool, str]:
        count = episode_capacity(api)
        return count >= 1, f"for {count} episode{'' if count == 1 else 's'} at a time"

    return _tried("capacity of the nodes", look, "add a node, or one with more memory or cores")


def _tried(check: str, look: Callable[[], tuple[bool, str]], remedy: str) -> Requirement:
    try:
        ok, found = look()
    except PlatformError as error:
        return Requirement(check, False, str(error), remedy)
    return Requirement(check, ok, found, remedy)
