"""Charges that the payment service refuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.intensities import either
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "paymentFailure"
PERCENT = (100, 90, 75, 50, 25)


@fault(
    "payment-failure",
    system_level="Application",
    fault_type="Authentication Issue",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
    intensity=f"{either(reversed(PERCENT))} % of the charges",
    gray=True,
)
def payment_failure(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Let a share of the charges fail with an invalid token."""
    return turn_on(platform, FLAG, str(rng.choice([f"{number}%" for number in PERCENT])))
