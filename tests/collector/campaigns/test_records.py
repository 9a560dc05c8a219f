"""A campaign's file is read again whatever its number of episodes, or is not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.collector.campaigns import records
from faultset.collector.campaigns.records import read_campaign, record_failures, write_campaign
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.requests import make_request
from faultset.core.errors import DataError

REQUEST = make_request(faults=["pod-kill"], apps=["hotel"], profile="quick")
CAMPAIGN = campaign_id(REQUEST)


def test_a_campaign_of_many_megabytes_is_read_again(tmp_path: Path) -> None:
    write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    record_failures(tmp_path, CAMPAIGN, {"e": "x" * (9 << 20)})
    assert len(read_campaign(tmp_path, CAMPAIGN)["failures"]["e"]) == 9 << 20


def test_a_campaign_that_could_not_be_read_again_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LIMIT_BYTES", 1000)
    with pytest.raises(DataError, match="collect them in several campaigns, with another --seed each"):
        write_campaign(tmp_path, CAMPAIGN, REQUEST, plan_campaign(REQUEST), unsupported={}, settings={})
    assert not list(tmp_path.rglob("*.json"))
