"""What a cluster must have to run episodes, checked one by one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from faultset.collector.platforms.hosts import Requirement
from faultset.collector.platforms.kubernetes.chaos_mesh.installation import chaos_mesh_rows
from faultset.collector.platforms.kubernetes.client import Api, path_of
from faultset.collector.platforms.kubernetes.host import CHAOS_MESH, ClusterSettings
from faultset.collector.platforms.kubernetes.manifests import (
    absent_images,
    missing_images_sentence,
    required_images,
)
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_jaeger, find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus_samples import SampleReader
from faultset.collector.platforms.kubernetes.telemetry.prometheus_source import (
    GAUGE_HISTOGRAM,
    MetricTypes,
    Targets,
    scrape_interval_s,
)
from faultset.collector.platforms.objects import quantity
from faultset.collector.spec.custom_resources import operator_rules
from faultset.collector.spec.features.operators import CustomResource
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


_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    purpose: str
    """What is impossible without it; completes "needed to"."""


_ALL = ("get", "list", "watch", "create", "patch", "delete")

ROLE_RULES: tuple[Rule, ...] = (
    Rule(
        group="",
        resources=("namespaces",),
        verbs=("get", "list", "create", "patch", "delete"),
        purpose="give every episode namespaces of its own",
    ),
    Rule(
        group="",
        resources=("services", "configmaps", "persistentvolumeclaims"),
        verbs=_ALL,
        purpose="deploy and change applications",
    ),
    Rule(group="", resources=("pods",), verbs=(*_ALL, "deletecollection"), purpose="run, watch and end pods"),
    Rule(group="", resources=("secrets",), verbs=("get", "create", "patch"), purpose="give the node agent its token"),
    Rule(group="", resources=("endpoints", "events"), verbs=("get", "list", "watch"), purpose="record what happens"),
    Rule(group="", resources=("pods/log",), verbs=("get",), purpose="record logs"),
    Rule(group="", resources=("pods/exec",), verbs=("get", "create"), purpose="run commands in pods"),
    Rule(group="", resources=("pods/proxy", "services/proxy"), verbs=("get", "create"), purpose="read telemetry"),
    Rule(group="", resources=("pods/resize",), verbs=("patch",), purpose="change limits of running pods"),
    Rule(group="", resources=("pods/ephemeralcontainers",), verbs=("patch",), purpose="disturb without an agent"),
    Rule(
        group="apps",
        resources=("deployments", "replicasets", "statefulsets", "daemonsets"),
        verbs=_ALL,
        purpose="deploy and change workloads",
    ),
    Rule(group="", resources=("persistentvolumes",), verbs=_ALL, purpose="make the stores' volumes"),
    Rule(group="", resources=("nodes",), verbs=("get", "list"), purpose="place pods and check for room"),
    Rule(
        group="authorization.k8s.io",
        resources=("selfsubjectaccessreviews",),
        verbs=("create",),
        purpose="check permissions",
    ),
)

OPERATOR_RULES: tuple[Rule, ...] = (
    Rule(
        group="apiextensions.k8s.io",
        resources=("customresourcedefinitions",),
        verbs=("get", "create", "patch", "delete"),
        purpose="define custom resources",
    ),
    Rule(
        group="storage.k8s.io",
        resources=("storageclasses",),
        verbs=("list",),
        purpose="see whether the cluster makes volumes by itself",
    ),
    Rule(group="", resources=("serviceaccounts",), verbs=("create", "patch"), purpose="give operators an account"),
    Rule(
        group="rbac.authorization.k8s.io",
        resources=("roles", "rolebindings"),
        verbs=("create", "patch"),
        purpose="give operators their rights",
    ),
    Rule(group="", resources=("events",), verbs=("create", "patch"), purpose="let operators tell what happens"),
    Rule(
        group="",
        resources=("services", "persistentvolumeclaims", "pods"),
        verbs=("update",),
        purpose="let operators change what they made",
    ),
    Rule(group="apps", resources=("statefulsets",), verbs=("update",), purpose="let operators update workloads"),
)
"""What applications with an operator of ours need besides, for nobody may give an operator more than he has."""


def operator_permissions(resource: CustomResource) -> tuple[Rule, ...]:
    """Return what the deployment of an application with an operator needs beyond `ROLE_RULES`."""
    (own,) = [rule for rule in operator_rules(resource) if rule["apiGroups"] == [resource.group]]
    purpose = f"use objects of kind {resource.kind}"
    custom = Rule(group=resource.group, resources=tuple(own["resources"]), verbs=tuple(own["verbs"]), purpose=purpose)
    return (*OPERATOR_RULES, custom)


def missing_permissions(api: Api, rules: Sequence[Rule] = ROLE_RULES) -> list[tuple[Rule, str, list[str]]]:
    """Return what the user may not do: rule, resource and the verbs that are refused.

    Asked for all namespaces at once, because those of the episodes do not exist yet.
    """
    asked = [(rule, resource, verb) for rule in rules for resource in rule.resources for verb in rule.verbs]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        allowed = list(pool.map(lambda one: _is_allowed(api, *one), asked))
    missing: dict[tuple[Rule, str], list[str]] = {}
    for (rule, resource, verb), ok in zip(asked, allowed, strict=True):
        if not ok:
            missing.setdefault((rule, resource), []).append(verb)
    return [(rule, resource, verbs) for (rule, resource), verbs in missing.items()]


def check_permissions(api: Api) -> None:
    """Raise PlatformError when the user may not do all that episodes need."""
    missing = missing_permissions(api)
    if missing:
        rule, resource, verbs = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PlatformError(
            f"the kubeconfig's user may not {'/'.join(verbs)} {resource}{more}, which is needed to {rule.purpose}; "
            "grant the role of docs/kubernetes.md, and see 'faultset doctor --platform kubernetes' for all"
        )


def _is_allowed(api: Api, rule: Rule, resource: str, verb: str) -> bool:
    name, _, sub = resource.partition("/")
    attributes = {"group": rule.group, "resource": name, "verb": verb}
    if sub:
        attributes["subresource"] = sub
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer.get("status", {}).get("allowed"))


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
            "grant the roles of docs/kubernetes.md to the kubeconfig's user",
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
    remedy = "--faults all leaves out what cannot be made; docs/kubernetes.md says what faults need"
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
