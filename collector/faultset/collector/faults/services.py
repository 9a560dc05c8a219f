"""Faults of Services and of probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from numpy.random import Generator

from faultset.collector.faults.deployments import build_readiness_probe, get_container, list_pods, patch_container
from faultset.collector.faults.registry import Parameters, fault
from faultset.collector.faults.targets import list_networked_services
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import ObjectNotFound, is_ready
from faultset.collector.spec.containers import METRICS_PORT
from faultset.datasets.telemetry_formats.kubernetes_objects import Object


def points_to_closed_port(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    ports = [port.get("targetPort") for port in platform.get("Service", target)["spec"]["ports"]]
    return f"Service {target} points to port {ports[0]}" if ports[0] == parameters["target_port"] else None


_SERVICE = {"system_level": "Virtualization", "targets": list_networked_services, "root_cause_kind": "Service"}
_PROBE = {"system_level": "Virtualization", "fault_type": "Misconfiguration", "targets": list_networked_services}


@fault("target-port", **_SERVICE, fault_type="Misconfiguration", paper_number=2, check=points_to_closed_port)
def target_port(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Point the Service at a port where nothing listens."""
    ports = platform.get("Service", target)["spec"]["ports"]
    taken = {port["port"] for port in ports} | {METRICS_PORT}
    wrong_port = int(rng.choice([port for port in range(9000, 10000) if port not in taken]))
    platform.patch("Service", target, {"spec": {"ports": [{**port, "targetPort": wrong_port} for port in ports]}})
    return {"target_port": wrong_port}


def selects_nothing(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    selector = platform.get("Service", target)["spec"]["selector"]
    return None if platform.list("Pod", selector) else f"Service {target} selects no pod"


@fault("wrong-selector", **_SERVICE, fault_type="Misconfiguration", check=selects_nothing)
def wrong_selector(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Add a label that no pod has to the Service's selector."""
    label, value = str(rng.choice(["tier", "release", "track", "slot"])), f"v{int(rng.integers(2, 9))}"
    platform.patch("Service", target, {"spec": {"selector": {label: value}}})
    return {"label": label, "value": value}


def is_gone(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    try:
        platform.get("Service", target)
    except ObjectNotFound:
        return f"Service {target} does not exist"
    return None


@fault("missing-service", **_SERVICE, fault_type="Operation Error", check=is_gone)
def missing_service(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Delete the Service, so that its name no longer resolves."""
    platform.delete("Service", target)
    return {"service": target}


_PROBE_PATHS = ("/healthz", "/health", "/ready", "/live", "/ping")


def draw_unanswered_probe(platform: Platform, target: str, rng: Generator) -> dict[str, Any]:
    """Draw an HTTP probe for a port that the target's container does not open."""
    ports = get_container(platform, target).get("ports") or []
    taken = {port.get("containerPort") for port in ports} | {METRICS_PORT}
    port = int(rng.choice([number for number in range(8000, 9500) if number not in taken]))
    return {
        "httpGet": {"path": str(rng.choice(_PROBE_PATHS)), "port": port},
        "periodSeconds": int(rng.integers(2, 6)),
        "timeoutSeconds": 1,
        "failureThreshold": 1,
    }


def probes_port(pod: Object, probe: Literal["readinessProbe", "livenessProbe"], port: int) -> bool:
    request = (pod["spec"]["containers"][0].get(probe) or {}).get("httpGet") or {}
    return request.get("port") == port


def runs_but_is_not_ready(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether pods with the probe run and none of them is ready."""
    pods = [pod for pod in list_pods(platform, target) if probes_port(pod, "readinessProbe", parameters["port"])]
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    if running and not any(is_ready(pod) for pod in pods):
        return f"{running[-1]['metadata']['name']} runs but is not ready: port {parameters['port']} does not answer"
    return None


@fault("failing-readiness-probe", **_PROBE, check=runs_but_is_not_ready)
def failing_readiness_probe(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Replace the pod with one that has a readiness probe on a port where nothing listens."""
    probe = draw_unanswered_probe(platform, target, rng)
    patch_container(platform, target, recreate=True, readinessProbe=probe)
    return {"port": probe["httpGet"]["port"], "path": probe["httpGet"]["path"], "period_s": probe["periodSeconds"]}


def was_restarted(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    for pod in list_pods(platform, target):
        restarts = sum(status.get("restartCount", 0) for status in pod.get("status", {}).get("containerStatuses", []))
        if restarts and probes_port(pod, "livenessProbe", parameters["port"]):
            name, port = pod["metadata"]["name"], parameters["port"]
            return f"{name} was restarted {restarts} times: port {port} does not answer"
    return None


@fault(
    "killing-liveness-probe",
    **_PROBE,
    check=was_restarted,
    intensity="a probe every 2 to 5 s, from 2 to 8 s after the container is ready",
)
def killing_liveness_probe(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a liveness probe on a port where nothing listens, so that containers are killed again and again."""
    ready = build_readiness_probe(platform.app, platform.get("Deployment", target))
    ready_s = ready.get("readinessProbe", {}).get("initialDelaySeconds", 0)
    probe = {**draw_unanswered_probe(platform, target, rng), "initialDelaySeconds": ready_s + int(rng.integers(2, 9))}
    patch_container(platform, target, livenessProbe=probe, **ready)
    return {
        "port": probe["httpGet"]["port"],
        "path": probe["httpGet"]["path"],
        "period_s": probe["periodSeconds"],
        "initial_delay_s": probe["initialDelaySeconds"],
    }
