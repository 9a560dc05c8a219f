"""Missing account: nobody of that name can log in any more (AIOpsLab Table 2, row 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import (
    account_of,
    administer,
    consumer_fails,
    consumers_before,
    flush_caches,
    restart_consumers,
)
from faultset.collector.faults.targets import consumer_names, databases_with_password
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.stores.driver import REMOVE_ACCOUNT


@fault(
    "user-unregistered",
    system_level="Application",
    fault_type="Network/Storage Issue",
    paper_number=4,
    targets=databases_with_password,
    check=consumer_fails,
    observe=consumers_before,
    check_sees="events",
    also_accepted=consumer_names,
    needs=("exec", "runtime"),
)
def user_unregistered(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Delete the account with which the database is used, then restart its consumers."""
    administer(platform, target, REMOVE_ACCOUNT)
    caches = flush_caches(platform, target)
    return {
        "account": account_of(platform.app, target),
        "flushed": caches,
        "restarted": restart_consumers(platform, target),
    }
