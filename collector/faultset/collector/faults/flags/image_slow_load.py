"""Images that come five or ten seconds late."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.intensities import either
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "imageSlowLoad"
SECONDS = (5, 10)


@fault(
    "image-slow-load",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
    intensity=f"{either(SECONDS)} s",
    gray=True,
)
def image_slow_load(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Delay images by some seconds."""
    return turn_on(platform, FLAG, str(rng.choice([f"{number}sec" for number in SECONDS])))
