"""Campaign files: every option of `collect`, the command line wins, and a campaign of a dataset becomes one again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.collector.campaigns.records import read_campaign, write_campaign
from faultset.collector.cli.campaigns import list_campaigns, show
from faultset.collector.cli.collect import collect
from faultset.collector.plans.requests import campaign_id, make_request, plan_campaign
from faultset.core.errors import DataError

CONFIG = """
faults: [target-port, pod-kill]
apps: hotel
seed: 7
profile: quick
baseline: 50s
normal: 2
"""


def planned(*words: str) -> list[dict]:
    done = CliRunner().invoke(collect, [*words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_a_campaign_file_stands_for_its_options(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(CONFIG)
    words = "--faults target-port,pod-kill --apps hotel --seed 7 --profile quick --baseline 50s --normal 2".split()
    assert planned("--config", str(path)) == planned(*words)


def test_options_on_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(CONFIG)
    rows = planned("--config", str(path), "--faults", "pod-failure", "--normal", "0")
    assert [row["fault"] for row in rows] == ["pod-failure"]
    assert rows[0]["view_s"] == 95.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fualts: all", 'unknown option "fualts"; did you mean "faults" or "fault"?'),
        ("- all", "must be a mapping of options of collect, but is list"),
        ("faults: {a: b}", 'option "faults" in campaign file'),
        ("faults: [", "is not YAML"),
        ("{faults: all, apps: hotel, seed: many}", "'many' is not a valid integer"),
        ("{faults: all, apps: hotel, baseline: 5 parsecs}", "is not a duration"),
    ],
)
def test_a_wrong_campaign_file_gets_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(text)
    done = CliRunner().invoke(collect, ["--config", str(path), "--out", str(tmp_path / "data")])
    assert done.exit_code == 2, done.output
    assert sentence in done.output
    assert not (tmp_path / "data").exists()


def test_a_campaign_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(collect, ["--config", str(tmp_path / "none.yaml")])
    assert done.exit_code == 2
    assert "cannot be read (No such file or directory)" in done.output


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"profile": "quick", "mix": "reserve-heavy", "targets": ["geo"]},
        {"baseline_s": 61.5, "fault_s": 33.25, "normal": 0, "rate_rps": 12.5, "step_s": 0.5, "trace_sampling": 0.1},
    ],
)
def test_a_stored_campaign_becomes_a_file_with_the_same_plans(changes: dict, tmp_path: Path) -> None:
    from faultset.collector.apps import load_app

    if changes.get("mix"):
        changes = {**changes, "mix": sorted(load_app("hotel").mixes)[-1]}
    request = make_request(faults=["target-port"], apps=["hotel"], **{"seed": 3, **changes})
    plans = plan_campaign(request)
    write_campaign(tmp_path, campaign_id(request), request, plans, unsupported={}, settings={})
    done = CliRunner().invoke(show, [str(tmp_path), campaign_id(request), "--as-config"])
    assert done.exit_code == 0, done.output
    path = tmp_path / "campaign.yaml"
    path.write_text(done.output)
    assert [row["episode"] for row in planned("--config", str(path))] == [plan.episode for plan in plans]


def test_campaigns_of_a_dataset_are_listed_and_shown(tmp_path: Path) -> None:
    request = make_request(faults=["target-port"], apps=["hotel"])
    write_campaign(tmp_path, campaign_id(request), request, plan_campaign(request), unsupported={}, settings={})
    rows = json.loads(CliRunner().invoke(list_campaigns, [str(tmp_path), "--json"]).output)
    assert [(row["campaign"], row["plans"]) for row in rows] == [(campaign_id(request), 7)]
    shown = json.loads(CliRunner().invoke(show, [str(tmp_path), campaign_id(request)]).output)
    assert shown == read_campaign(tmp_path, campaign_id(request))
    with pytest.raises(DataError, match="has no campaign"):
        read_campaign(tmp_path, "0")


def test_the_id_of_a_request_is_that_of_earlier_releases() -> None:
    assert campaign_id(make_request(faults=["target-port"], apps=["hotel"], profile="quick")) == "3d0aeddcbf93"
