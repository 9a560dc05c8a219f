"""The oracle asks the platform no more than it must."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
from faultset.collector.mitigation.oracle import HealthyState, MitigationOracle
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal


class CountingPlatform(FakePlatform):
    """Counts how often each kind of objects is listed."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.listed: Counter[str] = Counter()

    def list(self, kind: str, labels: Any = None) -> Any:
        self.listed[kind] += 1
        return super().list(kind, labels)


def test_objects_are_listed_once_for_all_that_is_asked_of_them(tmp_path: Path) -> None:
    platform = CountingPlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    platform.deploy()
    fault = get_fault("target-port")
    oracle = MitigationOracle(
        platform,
        fault,
        "geo",
        {"target_port": 1},
        before=None,
        healthy=HealthyState.of(platform),
        unhealthy_requests=lambda start_ns, end_ns: "",
    )
    platform.simulation.store.remove("ConfigMap", platform.list("ConfigMap")[0]["metadata"]["name"])
    platform.listed.clear()
    parts = {one.part: one for one in oracle.read(0, 1)}
    platform.journal.close()
    assert parts["objects"].ok
    assert "is missing" in parts["presence"].detail
    assert {kind: platform.listed[kind] for kind in ("Service", "ConfigMap", "Secret")} == dict.fromkeys(
        ("Service", "ConfigMap", "Secret"), 1
    )
