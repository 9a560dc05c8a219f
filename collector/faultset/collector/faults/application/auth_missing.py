"""Password required by the store, client unaware of it (AIOpsLab Table 2, row 1).

The original turns on TLS in a MongoDB whose client speaks plain text. Here an account whose clients are not configured
to log in needs a password that they do not have; what follows is the same, the store refuses a client that worked until
then.
"""

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
from faultset.collector.faults.targets import databases_without_password
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.stores.driver import REQUIRE_PASSWORD


@fault(
    "auth-missing",
    system_level="Application",
    fault_type="Misconfiguration",
    paper_number=1,
    targets=databases_without_password,
    check=consumer_fails,
    observe=consumers_before,
    check_sees="events",
    needs=("exec", "runtime"),
)
def auth_missing(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Require another password of an account, then restart the consumers, which do not know it."""
    administer(platform, target, REQUIRE_PASSWORD)
    caches = flush_caches(platform, target)
    return {
        "account": account_of(platform.app, target),
        "flushed": caches,
        "restarted": restart_consumers(platform, target),
    }
