"""Evidence that the network of a pod is impaired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.platform import Platform


def is_impaired(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the platform disturbs the pod's packets at this moment."""
    packets = require(platform, NetworkImpairer).impaired_packets(parameters["pod"])
    return f"{packets} packets of {parameters['pod']} disturbed" if packets else None
