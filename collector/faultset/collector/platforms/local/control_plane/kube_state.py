"""Samples of the objects' state under the names of kube-state-metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.platforms.local.telemetry.messages import StateSample
from faultset.collector.sources.metric_store import (
    CLAIM_PHASES,
    POD_PHASES,
    TERMINATED_REASONS,
    VOLUME_PHASES,
    WAITING_REASONS,
)


def state_samples(store: ObjectStore, service_of: Callable[[Mapping[str, Any]], str | None]) -> tuple[StateSample, ...]:
    """Return one sample of every series, in a stable order."""
    made: list[StateSample] = []
    for kind, samples in _SAMPLES.items():
        for found in store.each(kind):
            service = service_of(found)
            for metric, pod, container, labels, value in samples(found):
                series_kind = "counter" if metric.endswith("_total") else "gauge"
                made.append(
                    StateSample(
                        metric=metric,
                        service=service,
                        pod=pod,
                        container=container,
                        labels=labels,
                        kind=series_kind,
                        value=float(value),
                    )
                )
    return tuple(made)


_Sample = tuple[str, str | None, str | None, dict[str, str], float]


def _deployment(found: Object) -> Iterator[_Sample]:
    labels = {"deployment": found["metadata"]["name"]}
    status = found.get("status", {})
    values = {
        "kube_deployment_spec_replicas": found["spec"]["replicas"],
        "kube_deployment_status_replicas": status.get("replicas", 0),
        "kube_deployment_status_replicas_available": status.get("availableReplicas", 0),
        "kube_deployment_status_replicas_ready": status.get("readyReplicas", 0),
        "kube_deployment_status_replicas_unavailable": status.get("unavailableReplicas", 0),
        "kube_deployment_status_replicas_updated": status.get("updatedReplicas", 0),
        "kube_deployment_status_observed_generation": status.get("observedGeneration", 0),
        "kube_deployment_metadata_generation": found["metadata"]["generation"],
    }
    for metric, value in values.items():
        yield metric, None, None, labels, value


def _stateful_set(found: Object) -> Iterator[_Sample]:
    labels = {"statefulset": found["metadata"]["name"]}
    status = found.get("status", {})
    values = {
        "kube_statefulset_replicas": found["spec"]["replicas"],
        "kube_statefulset_status_replicas": status.get("replicas", 0),
        "kube_statefulset_status_replicas_available": status.get("availableReplicas", 0),
        "kube_statefulset_status_replicas_current": status.get("currentReplicas", 0),
        "kube_statefulset_status_replicas_ready": status.get("readyReplicas", 0),
        "kube_statefulset_status_replicas_updated": status.get("updatedReplicas", 0),
        "kube_statefulset_status_observed_generation": status.get("observedGeneration", 0),
        "kube_statefulset_metadata_generation": found["metadata"]["generation"],
    }
    for metric, value in values.items():
        yield metric, None, None, labels, value


def _replica_set(found: Object) -> Iterator[_Sample]:
    labels = {"replicaset": found["metadata"]["name"]}
    yield "kube_replicaset_spec_replicas", None, None, labels, found["spec"]["replicas"]
    yield "kube_replicaset_status_ready_replicas", None, None, labels, found["status"].get("readyReplicas", 0)


def _pod(found: Object) -> Iterator[_Sample]:
    name, status = found["metadata"]["name"], found.get("status", {})
    phase = status.get("phase", "Pending")
    for possible in POD_PHASES:
        yield "kube_pod_status_phase", name, None, {"phase": possible}, possible == phase
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    ready = conditions.get("Ready", {}).get("status") == "True"
    yield "kube_pod_status_ready", name, None, {"condition": "true"}, ready
    yield "kube_pod_status_ready", name, None, {"condition": "false"}, not ready
    unschedulable = conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"
    yield "kube_pod_status_unschedulable", name, None, {}, unschedulable
    for container in status.get("containerStatuses", []):
        yield from _container(name, container)


def _container(pod: str, status: dict[str, Any]) -> Iterator[_Sample]:
    name, state = status["name"], status["state"]
    yield "kube_pod_container_status_restarts_total", pod, name, {}, status["restartCount"]
    yield "kube_pod_container_status_ready", pod, name, {}, status["ready"]
    for kind in ("running", "waiting", "terminated"):
        yield f"kube_pod_container_status_{kind}", pod, name, {}, kind in state
    waiting = state.get("waiting", {}).get("reason")
    for reason in WAITING_REASONS:
        yield "kube_pod_container_status_waiting_reason", pod, name, {"reason": reason}, reason == waiting
    last = status.get("lastState", {}).get("terminated", {})
    for reason in TERMINATED_REASONS:
        is_last = reason == last.get("reason")
        yield "kube_pod_container_status_last_terminated_reason", pod, name, {"reason": reason}, is_last
    if last:
        yield "kube_pod_container_status_last_terminated_exitcode", pod, name, {}, last["exitCode"]


def _endpoints(found: Object) -> Iterator[_Sample]:
    subsets = found.get("subsets") or []
    for ready, field in (("true", "addresses"), ("false", "notReadyAddresses")):
        count = sum(len(subset.get(field) or ()) for subset in subsets)
        yield "kube_endpoint_address", None, None, {"endpoint": found["metadata"]["name"], "ready": ready}, count


def _claim(found: Object) -> Iterator[_Sample]:
    phase = found.get("status", {}).get("phase")
    for possible in CLAIM_PHASES:
        labels = {"persistentvolumeclaim": found["metadata"]["name"], "phase": possible}
        yield "kube_persistentvolumeclaim_status_phase", None, None, labels, possible == phase


def _volume(found: Object) -> Iterator[_Sample]:
    phase = found.get("status", {}).get("phase")
    for possible in VOLUME_PHASES:
        labels = {"persistentvolume": found["metadata"]["name"], "phase": possible}
        yield "kube_persistentvolume_status_phase", None, None, labels, possible == phase


_SAMPLES: dict[str, Callable[[Object], Iterator[_Sample]]] = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "ReplicaSet": _replica_set,
    "Pod": _pod,
    "Endpoints": _endpoints,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
}
