"""A store that may hold less than it has to: it answers reads and refuses writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.storage.server_limits import runs_with_limit, start_with_limit
from faultset.collector.faults.stores import stores_with_capability
from faultset.collector.faults.targets import written_stores
from faultset.collector.platforms.api.platform import Platform


@fault(
    "store-memory-limit",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=stores_with_capability("memory-limit", written_stores),
    check=runs_with_limit,
    intensity="256 to 700 KiB",
    needs=("runtime",),
)
def store_memory_limit(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Start a store with less memory for data than its server needs by itself, so that nothing more fits in."""
    return start_with_limit(platform, target, "--max-memory-kib", int(rng.integers(256, 700)))
