"""The same faults of stores with Redis in the place of a store and with the store's own server: the same symptoms."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_symptoms import symptoms

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.planned_app import original_servers, store_servers, with_stores
from faultset.collector.platforms.local.host import LocalHost
from faultset.core.errors import FaultsetError

CASES = (
    ("hotel", "slow-store", "memcached-rate"),
    ("hotel", "connection-limit", "memcached-profile"),
    ("astronomy", "read-only-account", "postgresql"),
    ("astronomy", "revoke-auth", "postgresql"),
    ("astronomy", "user-unregistered", "postgresql"),
    ("astronomy", "volume-full", "postgresql"),
    ("astronomy", "locked-store", "postgresql"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("app", "fault", "target"), CASES)
def test_a_fault_shows_alike_whether_redis_is_in_the_place_of_a_store_or_not(
    app: str, fault: str, target: str, tmp_path: Path
) -> None:
    kind = load_app(app).services[target].store_driver
    loaded = with_stores(load_app(app), kind)
    try:
        server = store_servers(loaded, original_servers(LocalHost(), loaded))[target]
    except FaultsetError as error:
        pytest.skip(str(error))
    if target not in get_fault(fault).targets(loaded):
        pytest.skip(f"{server} cannot have the fault {fault}")
    usual = symptoms(app, fault, target, "redis", tmp_path / "redis", LocalHost())
    original = symptoms(app, fault, target, str(kind), tmp_path / "original", LocalHost())
    assert usual.confirmed
    assert original == usual
