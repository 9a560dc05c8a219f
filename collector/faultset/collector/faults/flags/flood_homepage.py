"""A flood of requests for the home page."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "loadGeneratorFloodHomepage"


@fault(
    "flood-homepage",
    system_level="Application",
    fault_type="Operation Error",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
)
def flood_homepage(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Ask for the home page a hundred times in a row, again and again."""
    return turn_on(platform, FLAG, "on")
