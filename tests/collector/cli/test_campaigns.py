"""The commands `campaign list` and `campaign show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faultset.collector.campaigns.records import read_campaign, write_campaign
from faultset.collector.cli.campaigns import list_campaigns, show
from faultset.collector.cli.collect import collect
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.requests import make_request
from faultset.core.errors import DataError


def planned(*words: str) -> list[dict]:
    done = CliRunner().invoke(collect, [*words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"profile": "quick", "mix": "reserve-heavy", "targets": ["geo"]},
        {"baseline_s": 61.5, "fault_s": 33.25, "normal": 0, "rate_rps": 12.5, "step_s": 0.5, "trace_sampling": 0.1},
    ],
)
def test_a_stored_campaign_becomes_a_file_with_the_same_plans(changes: Any, tmp_path: Path) -> None:
    from faultset.collector.apps import load_app

    if changes.get("mix"):
        changes = {**changes, "mix": sorted(load_app("hotel").mixes)[-1]}
    request = make_request(faults=["target-port"], apps=["hotel"], **({"seed": 3} | changes))
    plans = plan_campaign(request)
    write_campaign(tmp_path, campaign_id(request), request, plans, unsupported={}, settings={})
    done = CliRunner().invoke(show, [str(tmp_path), campaign_id(request), "--as-config"])
    assert done.exit_code == 0, done.output
    path = tmp_path / "campaign.yaml"
    path.write_text(done.output)
    assert {row["episode"] for row in planned("--config", str(path))} == {plan.episode for plan in plans}


def test_the_list_of_campaigns_is_no_wider_than_100_columns(tmp_path: Path) -> None:
    request = make_request(faults=["all"], apps=["hotel", "social"])
    write_campaign(tmp_path, campaign_id(request), request, plan_campaign(request), unsupported={}, settings={})
    table = CliRunner().invoke(list_campaigns, [str(tmp_path)]).output
    assert "hotel and 1 more" in table
    assert len(table.splitlines()) == 2
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 100


def test_campaigns_of_a_dataset_are_listed_and_shown(tmp_path: Path) -> None:
    request = make_request(faults=["target-port"], apps=["hotel"])
    write_campaign(tmp_path, campaign_id(request), request, plan_campaign(request), unsupported={}, settings={})
    rows = json.loads(CliRunner().invoke(list_campaigns, [str(tmp_path), "--json"]).output)
    assert [(row["campaign"], row["plans"]) for row in rows] == [(campaign_id(request), 3)]
    assert "target-port" in CliRunner().invoke(list_campaigns, [str(tmp_path)]).output
    shown = json.loads(CliRunner().invoke(show, [str(tmp_path), campaign_id(request)]).output)
    assert shown == read_campaign(tmp_path, campaign_id(request))
    with pytest.raises(DataError, match="has no campaign"):
        read_campaign(tmp_path, "0")
