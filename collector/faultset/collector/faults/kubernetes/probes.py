"""Probes that are asked where nobody answers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from faultset.collector.faults.deployments import container_of
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.spec.containers import METRICS_PORT

_PATHS = ("/healthz", "/health", "/ready", "/live", "/ping")


def draw_unanswered_probe(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a probe by HTTP at a port that the target's container does not open."""
    ports = container_of(platform, target).get("ports") or []
    taken = {port.get("containerPort") for port in ports} | {METRICS_PORT}
    port = int(rng.choice([number for number in range(8000, 9500) if number not in taken]))
    return {
        "httpGet": {"path": str(rng.choice(_PATHS)), "port": port},
        "periodSeconds": int(rng.integers(2, 6)),
        "timeoutSeconds": 1,
        "failureThreshold": 1,
    }


def asks_closed_port(pod: Object, probe: Literal["readinessProbe", "livenessProbe"], port: int) -> bool:
    """Say whether a pod's container has a probe by HTTP at a port."""
    asked = (pod["spec"]["containers"][0].get(probe) or {}).get("httpGet") or {}
    return asked.get("port") == port
