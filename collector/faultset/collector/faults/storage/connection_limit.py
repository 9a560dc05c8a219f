"""A store that takes fewer connections than its clients need: some wait or fail, the others go on."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.storage.server_limits import runs_with_limit, start_with_limit
from faultset.collector.faults.stores import stores_with_capability
from faultset.collector.faults.targets import own_stores_of_requests
from faultset.collector.platforms.api.platform import Platform


@fault(
    "connection-limit",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=stores_with_capability("connection-limit", own_stores_of_requests),
    check=runs_with_limit,
    intensity="one or two connections",
    needs=("runtime",),
)
def connection_limit(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Start a store so that it takes one or two connections at a time and refuses all others."""
    return start_with_limit(platform, target, "--max-clients", int(rng.integers(1, 3)))
