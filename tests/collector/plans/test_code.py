"""Edited code of a fault or an application makes another campaign, with episodes of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faultset.collector.apps import load_app
from faultset.collector.campaigns.records import code_changes, write_campaign
from faultset.collector.faults import registry
from faultset.collector.plans.campaign_plans import campaign_id, identify_requested_code, plan_campaign
from faultset.collector.plans.code import campaign_code, identify_app
from faultset.collector.plans.requests import make_request

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
