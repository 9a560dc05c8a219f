"""Password required by the store, client unaware of it (AIOpsLab Table 2, row 1).

The original turns on TLS in a MongoDB whose client speaks plain text. Here an account that needed no password
needs one; what follows is the same, the store refuses a client that worked until then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import (
    account_of,
    administer,
    consumer_fails,
    consumer_failures,
    driver_of,
    flush_caches,
    restart_consumers,
)
from faultset.collector.faults.targets import consumer_names, databases_without_password
from faultset.collector.platforms.api.platform import Platform


@fault(
    "auth-missing",
    system_level="Application",
    fault_type="Misconfiguration",
    paper_number=1,
    targets=databases_without_password,
    check=consumer_fails,
    observe=consumer_failures,
    also_accepted=consumer_names,
    needs=("exec", "runtime"),
)
def auth_missing(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Require a password of an account that had none, then restart the consumers, which do not know it."""
    password = rng.bytes(9).hex()
    account = account_of(platform.app, target)
    administer(platform, target, driver_of(platform.app, target).require_password(account, password))
    caches = flush_caches(platform, target)
    return {
        "account": account.username,
        "password": password,
        "flushed": caches,
        "restarted": restart_consumers(platform, target),
    }
