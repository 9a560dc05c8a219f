"""A cache of recommendations that grows until the memory is full."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "recommendationCacheFailure"


@fault(
    "recommendation-cache-failure",
    system_level="Application",
    fault_type="Code Defect",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
)
def recommendation_cache_failure(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Let half of the recommendations grow a cache by a quarter."""
    return turn_on(platform, FLAG, "on")
