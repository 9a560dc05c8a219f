"""A database whose files may not grow any more: it answers reads and refuses writes, as on a full volume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import act_as_administrator, store_state, stores_with_capability
from faultset.collector.faults.targets import written_databases
from faultset.collector.platforms.api.platform import Platform


def has_no_room(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the files of the database have a limit."""
    state = store_state(platform, target)
    if state.get("file_limit") is None:
        return None
    written = f", its last write ended with {state['file_write']}" if "file_write" in state else ""
    return f"files of {target} may have {state['file_limit']} bytes{written}"


@fault(
    "volume-full",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    targets=stores_with_capability("files", written_databases),
    check=has_no_room,
    intensity="0 to 1,500 bytes left",
    needs=("exec", "runtime"),
)
def volume_full(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Let the database's files grow by a few hundred bytes and no more, so that soon every write to them fails."""
    left = int(rng.integers(0, 1500))
    act_as_administrator(platform, target, ["limit-files", "--leave", str(left)], ["free-files"])
    return {"bytes_left": left}
