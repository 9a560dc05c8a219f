"""Carts that are emptied at a store that does not exist."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "cartFailure"


@fault(
    "cart-failure",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
    gray=True,
)
def cart_failure(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Empty carts at a store that does not exist; the order goes through, late."""
    return turn_on(platform, FLAG, "on")
