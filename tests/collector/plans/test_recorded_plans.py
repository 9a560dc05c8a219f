"""Plans of files and of collected episodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.collector.plans.plan import read_plan
from faultset.collector.plans.recorded_plans import plans_id, read_recorded_plans, select_repeatable
from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from tests.collector.plan_samples import PLAN

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
