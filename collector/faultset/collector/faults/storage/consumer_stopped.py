"""Consumers that no longer get messages: publishers go on, and the queue grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import account_of, administer, store_state
from faultset.collector.faults.targets import consumed_brokers
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.stores.driver import REVOKE_CONSUMING


def refuses_consumers(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the broker refuses to give messages to the application's account."""
    refusal = store_state(platform, target).get("consume_refused", "")
    return f"{target} gives {parameters['account']} no messages: {refusal}" if refusal else None


@fault(
    "consumer-stopped",
    system_level="Application",
    fault_type="Authentication Issue",
    targets=consumed_brokers,
    check=refuses_consumers,
    needs=("exec", "runtime"),
)
def consumer_stopped(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Take the right to consume from the application's account; it can still publish."""
    administer(platform, target, REVOKE_CONSUMING)
    return {"account": account_of(platform.app, target)}
