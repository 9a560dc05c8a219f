"""Four threads of the ad service that are always busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "adHighCpu"


@fault(
    "ad-high-cpu",
    system_level="Application",
    fault_type="Code Defect",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
    gray=True,
)
def ad_high_cpu(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Keep four threads of the ad service busy while it is asked for advertisements."""
    return turn_on(platform, FLAG, "on")
