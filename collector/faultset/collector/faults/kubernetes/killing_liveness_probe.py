"""A liveness probe that nobody answers: a container that is well is ended again and again."""

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


def is_restarted(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether a container with the probe was started again."""
    for pod in pods_of(platform, target):
        restarts = sum(one.get("restartCount", 0) for one in pod.get("status", {}).get("containerStatuses", []))
        if restarts and asks_closed_port(pod, "livenessProbe", parameters["port"]):
            name, port = pod["metadata"]["name"], parameters["port"]
            return f"{name} was restarted {restarts} times, port {port} does not answer"
    return None


@fault(
    "killing-liveness-probe",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=networked_services,
    check=is_restarted,
    intensity="killed after 2 to 8 s, asked every 2 to 5 s",
)
def killing_liveness_probe(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a liveness probe at a port on which nothing listens, so that every container lives for seconds only."""
    probe = {**draw_unanswered_probe(platform, target, rng), "initialDelaySeconds": int(rng.integers(2, 9))}
    patch_container(platform, target, livenessProbe=probe)
    return {
        "port": probe["httpGet"]["port"],
        "path": probe["httpGet"]["path"],
        "period_s": probe["periodSeconds"],
        "initial_delay_s": probe["initialDelaySeconds"],
    }
