"""An account that may read and no longer write: what changes data fails, everything else goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import account_of, administer, store_state, stores_with_capability
from faultset.collector.faults.targets import written_stores
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.stores.driver import REVOKE_WRITING


def _is_for_want_of_rights(refusal: str) -> bool:
    return "permission" in refusal or "not authorized" in refusal


def refuses_writes(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the store refuses a write of the application's account for want of the right."""
    refusal = store_state(platform, target).get("write_refused", "")
    return f"{target} refuses writes of {parameters['account']}: {refusal}" if _is_for_want_of_rights(refusal) else None


@fault(
    "read-only-account",
    system_level="Application",
    fault_type="Authentication Issue",
    targets=stores_with_capability("rights", written_stores),
    check=refuses_writes,
    needs=("exec", "runtime"),
)
def read_only_account(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Take the right to write from the account with which the application uses a store."""
    administer(platform, target, REVOKE_WRITING)
    return {"account": account_of(platform.app, target)}
