"""Revoked rights: the account can log in but may not run a command (AIOpsLab Table 2, row 3)."""

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
    stores_with_capability,
)
from faultset.collector.faults.targets import consumer_names, databases_with_password
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.stores.driver import REVOKE_RIGHTS


@fault(
    "revoke-auth",
    system_level="Application",
    fault_type="Authentication Issue",
    paper_number=3,
    targets=stores_with_capability("rights", databases_with_password),
    check=consumer_fails,
    observe=consumers_before,
    check_sees="events",
    also_accepted=consumer_names,
    needs=("exec", "runtime"),
)
def revoke_auth(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Take all rights from the account with which the database is used, then restart its consumers."""
    administer(platform, target, REVOKE_RIGHTS)
    caches = flush_caches(platform, target)
    return {
        "account": account_of(platform.app, target),
        "flushed": caches,
        "restarted": restart_consumers(platform, target),
    }
