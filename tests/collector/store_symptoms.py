"""What shows of a fault of a store, on any host and with either kind of stores."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from faultset.collector.apps import load_app
from faultset.collector.episodes.fault_steps import try_on_platform
from faultset.collector.episodes.recording import recorded_rows
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.planned_app import with_stores
from faultset.collector.platforms.hosts import PlatformHost
from faultset.collector.platforms.journal import Journal


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


def symptoms(
    app: str, fault: str, target: str, stores: str, folder: Path, host: PlatformHost, platform_name: str = "local"
) -> Symptoms:
    """Try a fault on a host, with the stores that there can be on a platform."""
    folder.mkdir()
    spec, loaded = get_fault(fault), with_stores(load_app(app), stores, platform_name)
    journal = Journal(folder / "journal.jsonl")
    platform = host.create_platform(loaded, folder, journal, episode="parity", seed=0, step_s=1.0)
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
