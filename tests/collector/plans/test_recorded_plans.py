"""Plans of earlier campaigns, and the identity of the code that plans run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.collector.apps import load_app
from faultset.collector.campaigns.records import code_changes, write_campaign
from faultset.collector.faults import registry
from faultset.collector.plans.campaign_plans import (
    campaign_code,
    campaign_id,
    identify_app,
    identify_requested_code,
    plan_campaign,
)
from faultset.collector.plans.plan import read_plan
from faultset.collector.plans.recorded_plans import plans_id, read_recorded_plans, select_repeatable
from faultset.collector.plans.requests import make_request
from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from tests.collector.plan_samples import PLAN

HOTEL = Path(registry.__file__).parents[1] / "apps" / "hotel"


def test_an_edited_app_file_gives_other_episodes_and_a_restored_one_the_same(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    shutil.copy(HOTEL.parent / "existing" / "astronomy-shop.yaml", file)
    request = make_request(faults=["target-port"], apps=[str(file)], platform="kubernetes")
    before = plan_campaign(request)
    text = file.read_text()
    file.write_text(text + "# edited\n")
    after = plan_campaign(request)
    assert {plan.episode for plan in before}.isdisjoint(plan.episode for plan in after)
    file.write_text(text)
    assert plan_campaign(request) == before


def test_an_edited_operation_of_an_app_folder_gives_other_episodes(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(HOTEL, folder, ignore=shutil.ignore_patterns("__pycache__"))
    request = make_request(faults=["target-port"], apps=[str(folder)])
    before = campaign_id(request)
    with (folder / "operations.py").open("a") as file:
        file.write("# edited\n")
    assert campaign_id(request) != before


def test_an_edited_fault_of_another_distribution_gives_other_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registries: None
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "acme_faults.py"
    file.write_text(
        "from faultset.collector.faults.registry import fault\n\n\n"
        '@fault("acme", system_level="Application", fault_type="Code Defect", targets=lambda app: ("geo",),\n'
        "       check=lambda platform, target, parameters, before: None)\n"
        "def inject(platform, target, rng):\n"
        '    """Do harm."""\n    return {}\n'
    )
    __import__("acme_faults")
    request = make_request(faults=["acme"], apps=["hotel"])
    before, code = plan_campaign(request), identify_requested_code(request)
    assert set(code) == {"app hotel", "fault acme"}
    write_campaign(tmp_path, campaign_id(request), request, before, unsupported={}, settings={}, code=code)
    assert code_changes(tmp_path, request, code) == []
    with file.open("a") as opened:
        opened.write("# edited\n")
    assert {plan.episode for plan in before}.isdisjoint(plan.episode for plan in plan_campaign(request))
    assert code_changes(tmp_path, request, identify_requested_code(request)) == ["fault acme"]


def test_what_comes_with_faultset_is_named_with_its_distribution() -> None:
    code = campaign_code([registry.get_fault("target-port")], ("hotel",), "local")
    assert set(code) == {"app hotel", "fault target-port"}
    assert all(identity.startswith("faultset ") for identity in code.values())
    assert identify_app("hotel").digest == identify_app(str(HOTEL)).digest
    assert load_app("hotel").name == "hotel"


DATASET = Path(__file__).parents[3] / "datasets" / "sample"
SAMPLE = DATASET / "episodes"


def test_the_plan_of_every_episode_of_the_sample_is_read_and_can_be_written_and_read(tmp_path: Path) -> None:
    for folder in sorted(SAMPLE.iterdir()):
        plan = read_plan(folder)
        assert plan.episode == folder.name
        (tmp_path / "plan.json").write_text(plan.to_json())
        assert read_plan(tmp_path / "plan.json") == plan


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be an episode collected by faultset"):
        read_plan(tmp_path)
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "journal.jsonl").write_text('{"state": "note", "verb": "phase"}\n')
    with pytest.raises(DataError, match="must contain a plan"):
        read_plan(tmp_path)


def test_a_dataset_and_its_card_hold_the_same_plans(tmp_path: Path) -> None:
    plans = read_recorded_plans(DATASET)
    assert {plan.episode for plan in plans} == {*open_dataset(DATASET).episodes}
    provenance = json.dumps({"plans": [json.loads(plan.to_json()) for plan in plans]}, indent=2)
    (tmp_path / "README.md").write_text(f"# data\n\n## Provenance\n\n```json\n{provenance}\n```\n\nend\n")
    (tmp_path / "1.0.0.json").write_text(f'{{"provenance": {provenance}}}')
    assert read_recorded_plans(tmp_path / "README.md") == plans == read_recorded_plans(tmp_path / "1.0.0.json")
    assert plans_id(plans) != plans_id(plans[1:])


def test_a_card_without_plans_is_refused(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(DataError, match="must hold the plans of a campaign, but has none"):
        read_recorded_plans(tmp_path / "card.json")


def test_plans_that_this_release_cannot_repeat_are_named_and_the_others_stay_as_they_were() -> None:
    unknown, moved = replace(PLAN, episode="old", fault="melt"), replace(PLAN, episode="far", target="moon")
    plans, objections = select_repeatable([PLAN, unknown, moved])
    assert plans == (PLAN,)
    assert objections == (
        "episode old (melt on geo in hotel) cannot be repeated: fault melt is unknown",
        "episode far (target-port on moon in hotel) cannot be repeated: target-port can no longer be applied to moon",
    )
    with pytest.raises(UsageError, match="no plan can be repeated; first: episode old"):
        select_repeatable([unknown])
