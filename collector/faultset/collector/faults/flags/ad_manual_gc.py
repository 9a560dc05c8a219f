"""Garbage collections that stop the ad service at every request."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "adManualGc"


@fault(
    "ad-manual-gc",
    system_level="Application",
    fault_type="Code Defect",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
    gray=True,
)
def ad_manual_gc(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Collect garbage ten times at every request for advertisements."""
    return turn_on(platform, FLAG, "on")
