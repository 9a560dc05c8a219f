"""One of ten requests for advertisements fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "adFailure"


@fault(
    "ad-failure",
    system_level="Application",
    fault_type="Code Defect",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
    gray=True,
)
def ad_failure(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Make one of ten requests for advertisements fail."""
    return turn_on(platform, FLAG, "on")
