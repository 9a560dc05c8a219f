"""Numbers for one answer: every part by its own rule, and the least of them as the reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faultset.core.errors import DataError
from faultset.evaluators.agent_tasks.grading import TaskLabel, grades, read_answer, read_label

FAULT = TaskLabel(
    task="all",
    fault=True,
    causes=(("geo", "mongodb-geo"),),
    candidates=("geo", "rate", "mongodb-geo"),
    system_level="Application",
    fault_type="Code Defect",
)
HEALTHY = TaskLabel(task="all", fault=False, candidates=FAULT.candidates)
RIGHT = {"fault": True, "services": ["geo"], "system_level": "application", "fault_type": "CODE DEFECT "}


def test_an_answer_that_is_right_in_all_parts_gets_all() -> None:
    assert grades(FAULT, RIGHT) == {"reward": 1.0, "detection": 1.0, "localization": 1.0, "diagnosis": 1.0}


@pytest.mark.parametrize(
    ("changed", "part", "worth"),
    [
        ({"fault": False}, "detection", 0.0),
        ({"fault": 1}, "detection", 0.0),
        ({"services": ["mongodb-geo"]}, "localization", 1.0),
        ({"services": ["rate", "geo"]}, "localization", 0.0),
        ({"services": ["rate", "geo"], "ordered": False}, "localization", 0.5),
        ({"services": ["nobody", "geo"]}, "localization", 1.0),
        ({"services": []}, "localization", 0.0),
        ({"services": "geo"}, "localization", 0.0),
        ({"fault_type": "misconfiguration"}, "diagnosis", 0.0),
        ({"system_level": None}, "diagnosis", 0.0),
    ],
)
def test_the_least_part_is_the_reward(changed: dict[str, Any], part: str, worth: float) -> None:
    found = grades(FAULT, RIGHT | changed)
    assert found[part] == worth
    assert found["reward"] == worth


def test_without_a_fault_it_is_right_to_name_nothing() -> None:
    nothing = {"fault": False, "services": [], "system_level": None, "fault_type": None}
    assert grades(HEALTHY, nothing)["reward"] == 1.0
    assert grades(HEALTHY, nothing | {"services": ["geo"]})["localization"] == 0.0
    assert set(grades(HEALTHY, None).values()) == {0.0}
    assert set(grades(HEALTHY, {}).values()) == {0.0}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"answer": 3}', b"\xff\xfe", b"[" * 100_000, b'{"answer": null}'])
def test_a_file_without_an_answer_is_no_answer(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "answer.json"
    file.write_bytes(content)
    assert read_answer(file) is None
    assert read_answer(tmp_path / "missing.json") is None


def test_a_label_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "label.json"
    file.write_text(json.dumps({"task": "all"}), "utf-8")
    with pytest.raises(DataError, match="is no label of a task"):
        read_label(file)
    file.write_text("{", "utf-8")
    with pytest.raises(DataError, match="is not JSON; export the tasks again"):
        read_label(file)
