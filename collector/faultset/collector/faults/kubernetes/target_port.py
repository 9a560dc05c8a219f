"""Wrong target port: callers are refused although the service is healthy (AIOpsLab Table 2, row 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.spec.containers import METRICS_PORT


def points_to_closed_port(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the Service has the wrong port."""
    ports = [port.get("targetPort") for port in platform.get("Service", target)["spec"]["ports"]]
    return f"Service {target} points to port {ports[0]}" if ports[0] == parameters["target_port"] else None


@fault(
    "target-port",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    paper_number=2,
    targets=networked_services,
    check=points_to_closed_port,
    root_cause_kind="Service",
)
def target_port(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Point the Service at a port on which nothing listens."""
    ports = platform.get("Service", target)["spec"]["ports"]
    taken = {port["port"] for port in ports} | {METRICS_PORT}
    wrong = int(rng.choice([port for port in range(9000, 10000) if port not in taken]))
    platform.patch("Service", target, {"spec": {"ports": [{**port, "targetPort": wrong} for port in ports]}})
    return {"target_port": wrong}
