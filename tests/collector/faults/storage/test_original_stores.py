"""The same faults of stores with Redis in the place of a store and with the store's own server: the same symptoms."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.episodes.recording.contexts import recorded_rows
from faultset.collector.episodes.trial import try_on_platform
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.chosen_stores import check_stores, with_stores
from faultset.collector.platforms.journal.journal import Journal
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


@dataclass(frozen=True)
class Symptoms:
    """What showed of a fault.

    Attributes
    ----------
    confirmed
        Whether its check saw it.
    requests_fail
        Whether client requests failed.
    failing
        Consumers of the store of which spans failed, or which logged errors.
    """

    confirmed: bool
    requests_fail: bool
    failing: frozenset[str]


def symptoms(app: str, fault: str, target: str, stores: str, folder: Path) -> Symptoms:
    """Try a fault on the embedded platform."""
    folder.mkdir()
    spec, loaded = get_fault(fault), with_stores(load_app(app), stores)
    journal = Journal(folder / "journal.jsonl")
    platform = LocalHost().create_platform(loaded, folder, journal, episode="parity", seed=0, step_s=1.0)
    begun_ns = time.time_ns()
    try:
        trial = try_on_platform(spec, target, platform, seed=0)
        batches = recorded_rows(platform, "spans", begun_ns, time.time_ns())
        spans = pa.Table.from_batches([*batches]).to_pandas()
    finally:
        platform.teardown()
        journal.close()
    failed = set(spans.loc[spans["status"] == "error", "service"].dropna())
    return Symptoms(trial.evidence is not None, trial.failed[0] > 0, frozenset(failed & set(loaded.consumers(target))))


@pytest.mark.slow
@pytest.mark.parametrize(("app", "fault", "target"), CASES)
def test_a_fault_shows_alike_whether_redis_is_in_the_place_of_a_store_or_not(
    app: str, fault: str, target: str, tmp_path: Path
) -> None:
    try:
        check_stores([with_stores(load_app(app), "original")])
    except FaultsetError as error:
        pytest.skip(str(error))
    usual = symptoms(app, fault, target, "redis", tmp_path / "redis")
    original = symptoms(app, fault, target, "original", tmp_path / "original")
    assert usual.confirmed
    assert original == usual
