"""What a cluster must have to run episodes, checked one by one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from faultset.collector.faults.registry import faults
from faultset.collector.platforms.api.requirements import Row, requirement
from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.api.permissions import ROLE_RULES, Rule, missing_permissions
from faultset.collector.platforms.kubernetes.doctor.capacity import episodes_that_fit
from faultset.collector.platforms.kubernetes.doctor.preflight import refusals
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_jaeger, find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus.samples import SampleReader
from faultset.collector.platforms.kubernetes.telemetry.prometheus.targets import Targets, scrape_interval_s
from faultset.collector.platforms.kubernetes.workloads.images import (
    REPOSITORY,
    absent_images,
    missing_images_sentence,
    required_images,
)
from faultset.core.errors import PlatformError

SLOW_S = 1.0
LONGEST_INTERVAL_S = 15.0
_ANNOTATION = "pod_annotation_prometheus_io_scrape"


def check_cluster(
    api: Api,
    *,
    prometheus_url: str | None = None,
    jaeger_url: str | None = None,
    repository: str = REPOSITORY,
) -> list[Row]:
    """Return a row for each requirement.

    Runs the node agent for a moment, in a namespace of its own, to see which faults can be made. A cluster that
    cannot be reached has only the first row.
    """
    rows = [_access(api)]
    if rows[0]["ok"]:
        rows += _permissions(api)
        rows += _prometheus(api, prometheus_url)
        rows.append(_jaeger(api, jaeger_url))
        rows.append(_images(api, repository))
        rows.append(_room(api))
        rows.append(_faults(api, repository))
    return rows


def _access(api: Api) -> Row:
    took, version = [], ""
    try:
        for _ in range(3):
            before = time.monotonic()
            version = api.get("/version")["gitVersion"]
            took.append(time.monotonic() - before)
    except PlatformError as error:
        return requirement("cluster", False, str(error), "correct the kubeconfig, or choose another context")
    latency_s = statistics.median(took)
    found = f"Kubernetes {version} at {api.server}, answers in {1e3 * latency_s:.0f} ms"
    return requirement("cluster", latency_s < SLOW_S, found, "work closer to the cluster: faults must be made on time")


def _permissions(api: Api) -> list[Row]:
    try:
        refused: dict[Rule, list[str]] = {}
        for rule, resource, verbs in missing_permissions(api):
            refused.setdefault(rule, []).append(f"{'/'.join(verbs)} {resource}")
    except PlatformError as error:
        return [requirement("permissions", False, str(error), "let the user create selfsubjectaccessreviews")]
    return [
        requirement(
            f"may {rule.purpose}",
            rule not in refused,
            "may not " + ", ".join(refused[rule]) if rule in refused else f"{', '.join(rule.resources)}: all verbs",
            "grant the role of docs/kubernetes.md to the kubeconfig's user",
        )
        for rule in ROLE_RULES
    ]


def _prometheus(api: Api, url: str | None) -> list[Row]:
    try:
        endpoint, why = find_prometheus(api, url)
    except PlatformError as error:
        return [
            requirement(
                "Prometheus", False, str(error), "collect with --install-telemetry, or name it: --prometheus-url"
            )
        ]
    reader = SampleReader(endpoint)
    return [
        requirement("Prometheus", True, why, ""),
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
    ]


def _interval(endpoint: Endpoint) -> Row:
    targets = Targets()
    targets.learn(endpoint)
    try:
        interval_s = scrape_interval_s(endpoint, targets)
    except PlatformError as error:
        return requirement("scrape interval", False, str(error), "let Prometheus show its configuration")
    return requirement(
        "scrape interval",
        interval_s <= LONGEST_INTERVAL_S,
        f"{interval_s:g} s",
        f"scrape every {LONGEST_INTERVAL_S:g} s at least, better every 5 s: faults last for a minute or two",
    )


def _containers(reader: SampleReader) -> Row:
    cpu = "container_cpu_usage_seconds_total"
    remedy = "let Prometheus scrape /metrics/cadvisor of the kubelets"
    row = _series(reader, "container metrics", f'{cpu}{{pod!="",container!="",container!="POD"}}', remedy)
    if row["ok"]:
        return row
    of_pods = _series(reader, "container metrics", f'{cpu}{{pod!=""}}', remedy)
    if of_pods["ok"]:
        of_pods["found"] += " of pods, none of their containers: cAdvisor does not find the container runtime"
    return of_pods


def _network(reader: SampleReader) -> Row:
    remedy = "let the kubelets' cAdvisor find the container runtime (kubelet --containerd); it has no network without"
    row = _series(reader, "network metrics", 'container_network_receive_bytes_total{pod!=""}', remedy)
    row["needed"] = False
    if not row["ok"]:
        row["found"] += "; episodes run, but their views have no bytes, packets and drops of pods"
    return row


def _series(reader: SampleReader, check: str, selector: str, remedy: str) -> Row:
    try:
        found = reader.instant(f"count({selector})")
    except PlatformError as error:
        return requirement(check, False, str(error), remedy)
    count = int(found[0][1]) if found else 0
    return requirement(check, count > 0, f"{count} series" if count else "none", remedy)


def _pods_are_scraped(endpoint: Endpoint) -> Row:
    remedy = "add a scrape job for pods with the annotation prometheus.io/scrape, or collect with --install-telemetry"
    try:
        ok = _ANNOTATION in endpoint.get("/api/v1/status/config")["data"]["yaml"]
    except (PlatformError, KeyError, TypeError) as error:
        return requirement("metrics of the services", False, str(error), remedy)
    return requirement("metrics of the services", ok, "annotated pods are scraped" if ok else "no job for them", remedy)


def _jaeger(api: Api, url: str | None) -> Row:
    remedy = "collect with --install-telemetry, or name it: --jaeger-url"
    return _tried("Jaeger", lambda: (True, find_jaeger(api, url)[2]), remedy)


def _images(api: Api, repository: str) -> Row:
    try:
        wanted = required_images(repository)
        absent = absent_images(api.get("/api/v1/nodes")["items"], wanted)
    except PlatformError as error:
        return requirement("images", False, str(error), "let the user list nodes")
    if absent:
        return requirement("images", False, f"{len(absent)} of {len(wanted)} missing", missing_images_sentence(absent))
    return requirement("images", True, f"{len(wanted)} on every node", "")


def _faults(api: Api, repository: str) -> Row:
    known = faults()
    try:
        refused, privileged = refusals(api, list(known.values()), repository)
    except PlatformError as error:
        return requirement("faults", False, str(error), "mend what the rows above name, then run doctor again")
    how = "an agent on every node" if privileged else "a container in every pod, for no agent may run on the nodes"
    found = f"{len(known) - len(refused)} of {len(known)} can be made, those of networks by {how}"
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        reasons.setdefault(reason, []).append(name)
    found += "".join(f"; not {', '.join(names)}: {reason}" for reason, names in reasons.items())
    remedy = "--faults all leaves the rest out; docs/kubernetes.md says what they need"
    return requirement("faults", not refused, found, remedy, needed=False)


def _room(api: Api) -> Row:
    def look() -> tuple[bool, str]:
        count = episodes_that_fit(api)
        return count >= 1, f"for {count} episode{'' if count == 1 else 's'} at a time"

    return _tried("room on the nodes", look, "add a node, or one with more memory or cores")


def _tried(check: str, look: Callable[[], tuple[bool, str]], remedy: str) -> Row:
    try:
        ok, found = look()
    except PlatformError as error:
        return requirement(check, False, str(error), remedy)
    return requirement(check, ok, found, remedy)
