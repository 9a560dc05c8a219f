"""Evidence that the network of a pod is impaired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultset.collector.platforms.api.capabilities import DisturbanceReporter, NetworkImpairer, require
from faultset.collector.platforms.api.platform import Platform


def is_impaired(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the platform disturbs the pod's packets or requests at this moment."""
    if isinstance(platform, DisturbanceReporter):
        return platform.disturbance_evidence(parameters["pod"])
    packets = require(platform, NetworkImpairer).impaired_packets(parameters["pod"])
    return f"{packets} packets of {parameters['pod']} disturbed" if packets else None
