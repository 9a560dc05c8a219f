"""A caller that looks for the payment service at an address that does not exist (AIOpsLab Table 2, row 12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "paymentUnreachable"


@fault(
    "payment-unreachable",
    system_level="Application",
    fault_type="Misconfiguration",
    paper_number=12,
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
    gray=True,
)
def payment_unreachable(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Let checkout charge at an address that does not exist."""
    return turn_on(platform, FLAG, "on")
