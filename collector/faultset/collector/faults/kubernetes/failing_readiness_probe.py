"""A readiness probe that nobody answers: the pod runs, but the Service sends it no requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import patch_container
from faultset.collector.faults.kubernetes.probes import asks_closed_port, draw_unanswered_probe
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.api.pod_state import is_ready


def runs_but_is_not_ready(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether pods with the probe run, and none of them is ready."""
    asked = [pod for pod in pods_of(platform, target) if asks_closed_port(pod, "readinessProbe", parameters["port"])]
    running = [pod for pod in asked if pod.get("status", {}).get("phase") == "Running"]
    if running and not any(is_ready(pod) for pod in asked):
        return f"{running[-1]['metadata']['name']} runs and is not ready, port {parameters['port']} does not answer"
    return None


@fault(
    "failing-readiness-probe",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=networked_services,
    check=runs_but_is_not_ready,
)
def failing_readiness_probe(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Replace the pod by one whose readiness is asked at a port on which nothing listens."""
    probe = draw_unanswered_probe(platform, target, rng)
    patch_container(platform, target, recreate=True, readinessProbe=probe)
    return {"port": probe["httpGet"]["port"], "path": probe["httpGet"]["path"], "period_s": probe["periodSeconds"]}
