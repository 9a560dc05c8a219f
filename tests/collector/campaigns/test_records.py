"""A campaign's file is read again whatever its number of episodes, or is not written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from faultset.collector.campaigns import records
from faultset.collector.campaigns.episode_queue import VoidAttempt
from faultset.collector.campaigns.provenance import collector_code, count_void_attempts
from faultset.collector.campaigns.records import read_campaign, record_failures, write_campaign
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.requests import make_request
from faultset.core.errors import DataError

ROOT = Path(__file__).parents[3]
REQUEST = make_request(faults=["pod-kill"], apps=["hotel"], profile="quick")
CAMPAIGN = campaign_id(REQUEST)


def test_a_campaign_of_many_megabytes_is_read_again(tmp_path: Path) -> None:
    write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    record_failures(tmp_path, CAMPAIGN, {"e": "x" * (9 << 20)})
    assert len(read_campaign(tmp_path, CAMPAIGN)["failures"]["e"]) == 9 << 20


def test_void_attempts_of_all_runs_are_counted_apart_for_episodes_with_and_without_a_fault(tmp_path: Path) -> None:
    write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    void = VoidAttempt(episode="e", has_fault=True, attempt=1, cause="host too busy", reason="95 ms late")
    record_failures(tmp_path, CAMPAIGN, {}, [void])
    voids = record_failures(tmp_path, CAMPAIGN, {}, [replace(void, has_fault=False), replace(void, attempt=2)])
    assert len(read_campaign(tmp_path, CAMPAIGN)["void_attempts"]) == 3
    assert count_void_attempts(voids) == {"with a fault": {"host too busy": 2}, "without a fault": {"host too busy": 1}}


def test_the_code_of_every_package_that_shapes_an_episode_is_named_with_the_commit() -> None:
    code = collector_code()
    assert {"platforms", "runtime", "load", "verdicts"} <= code["packages"].keys()
    assert ("commit" in code) == (ROOT / ".git").exists()


def test_a_campaign_that_could_not_be_read_again_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LIMIT_BYTES", 1000)
    with pytest.raises(DataError, match="Collect them in several campaigns, each with another --seed"):
        write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    assert not list(tmp_path.rglob("*.json"))
