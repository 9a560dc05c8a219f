"""A store that answers late."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.intensities import drawn_between
from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import stores_of_requests
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.impairments import Delay
from faultset.collector.platforms.api.platform import Platform


@fault(
    "slow-store",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    category="symptomatic",
    targets=stores_of_requests,
    check=is_impaired,
    root_cause_kind="Pod",
    intensity="25 to 300 ms",
    gray=True,
    needs=("delay",),
)
def slow_store(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Hold back all answers of a store, as a slow disk does."""
    pod = pod_of(platform, target)
    latency_s = drawn_between(rng, 0.025, 0.3)
    require(platform, NetworkImpairer).impair(pod, Delay(latency_s=latency_s, jitter_s=round(latency_s / 2, 4)))
    return {"pod": pod, "latency_s": latency_s}
