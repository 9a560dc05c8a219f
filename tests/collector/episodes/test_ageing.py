"""Applications that have run for a while before an episode begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from faultset.collector.apps import load_apps
from faultset.collector.episodes.ageing import age_application
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal

APPS = {name: app for name, app in load_apps().items() if app.deployed is None}


@pytest.mark.parametrize("name", APPS)
def test_an_aged_application_has_old_replica_sets_and_nothing_to_undo(name: str, tmp_path: Path) -> None:
    platform = FakePlatform(APPS[name], Journal(tmp_path / "journal.jsonl"))
    platform.deploy()
    before = {one["metadata"]["name"] for one in platform.list("ReplicaSet")}
    assert age_application(platform, np.random.default_rng(0))
    assert {one["metadata"]["name"] for one in platform.list("ReplicaSet")} > before
    assert any(one["metadata"]["generation"] > 1 for one in platform.list("Deployment"))
    assert platform.journal.open_undo_operations()
    platform.journal.accept()
    assert platform.journal.open_undo_operations() == []


def test_restarted_services_are_not_rolled_out_at_the_same_time(tmp_path: Path) -> None:
    app = APPS["hotel"]
    base = FakePlatform(app, Journal(tmp_path / "base.jsonl"))
    base.deploy()
    for seed in range(10):
        platform = FakePlatform.from_state(app, Journal(tmp_path / f"{seed}.jsonl"), base.state())
        age_application(platform, np.random.default_rng(seed))
        rolled_out = {call[2] for call in platform.calls if call[0] == "patch"}
        killed = {pod.rpartition("-")[0].rpartition("-")[0] for verb, pod, *_ in platform.calls if verb == "kill"}
        assert rolled_out
        assert killed
        assert not rolled_out & killed
