"""Plans of files and of collected episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.collector.plans.plan import read_plan
from faultset.core.errors import DataError

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample" / "episodes"


def test_the_plan_of_every_episode_of_the_sample_is_read_and_can_be_written_and_read(tmp_path: Path) -> None:
    for folder in sorted(SAMPLE.iterdir()):
        plan = read_plan(folder)
        assert plan.episode == folder.name
        (tmp_path / "plan.json").write_text(plan.to_json())
        assert read_plan(tmp_path / "plan.json") == plan


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no episode that was collected here"):
        read_plan(tmp_path)
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "journal.jsonl").write_text('{"state": "note", "verb": "phase"}\n')
    with pytest.raises(DataError, match="holds no plan"):
        read_plan(tmp_path)
