"""A report without an index: while it runs, the store answers nobody else."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.storage.repeated_work import begin_repeated_work, is_work_running
from faultset.collector.faults.stores import stores_with_capability
from faultset.collector.faults.targets import own_stores_of_requests
from faultset.collector.platforms.api.platform import Platform


@fault(
    "heavy-query",
    system_level="Application",
    fault_type="Operation Error",
    targets=stores_with_capability("locks", own_stores_of_requests),
    check=is_work_running,
    root_cause_kind="Pod",
    intensity="250 to 1,300 ms at a time, pauses of 0.5 to 3 s",
    gray=True,
    needs=("exec", "runtime"),
)
def heavy_query(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Run a query in a store that compares everything with everything, with pauses."""
    return begin_repeated_work(platform, target, rng, "report")
