from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from faultset.agents.trajectory import Trajectory, TrajectoryWriter, jsonable, parse_trajectory
from faultset.core.errors import DataError

VALID: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "go"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "tool_calls": [{"tool_call_id": "x", "function_name": "f", "arguments": {}}],
            "observation": {"results": [{"source_call_id": "x", "content": "y"}]},
        },
    ],
}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copy.deepcopy(VALID)
    change(document)
    return document


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "gap": (lambda d: d["steps"][1].update(step_id=3), "count from 1 without gaps"),
    "foreign call": (
        lambda d: d["steps"][1]["observation"]["results"][0].update(source_call_id="z"),
        "does not contain",
    ),
    "key of the agent": (lambda d: d["steps"][0].update(model_name="m"), "must not have model_name"),
    "no steps": (lambda d: d.update(steps=[]), "steps"),
    "metrics without a model call": (
        lambda d: d["steps"][1].update(llm_call_count=0, metrics={"prompt_tokens": 1}),
        "without a model call",
    ),
    "nameless inside": (
        lambda d: d.update(subagent_trajectories=[copy.deepcopy(VALID)]),
        "must have a trajectory_id",
    ),
    "two contents": (
        lambda d: d["steps"][0].update(message=[{"type": "text", "source": {"media_type": "image/png", "path": "p"}}]),
        "must have only text",
    ),
    "wrong source": (lambda d: d["steps"][0].update(source="wizard"), "source"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_the_format_forbids_is_neither_written_nor_read(name: str) -> None:
    change, reason = BROKEN[name]
    document = changed(change)
    with pytest.raises(ValidationError, match=reason):
        Trajectory.model_validate(document)
    with pytest.raises(DataError) as caught:
        parse_trajectory(document, "it")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(unknown=1),
        lambda d: d["steps"][1].update(unknown=1),
        lambda d: d["steps"][1]["tool_calls"][0].update(unknown=1),
        lambda d: d["steps"][1]["observation"]["results"][0].update(unknown=1),
    ],
)
def test_unknown_keys_are_left_out_on_reading_and_never_written(
    change: Callable[[dict[str, Any]], object],
) -> None:
    document = changed(change)
    with pytest.raises(ValidationError):
        Trajectory.model_validate(document)
    assert parse_trajectory(document, "it") == Trajectory.model_validate(VALID)


@pytest.mark.parametrize("minor", range(9))
def test_every_version_is_read_and_written_as_one(minor: int) -> None:
    found = parse_trajectory({**VALID, "schema_version": f"ATIF-v1.{minor}"}, "it")
    assert json.loads(found.to_json())["schema_version"] == "ATIF-v1.7"


@pytest.mark.parametrize("version", ["ATIF-v2.0", "", None, 1.7])
def test_other_versions_are_one_sentence(version: object) -> None:
    with pytest.raises(DataError, match=r"ATIF-v1\.0 or later"):
        parse_trajectory({**VALID, "schema_version": version}, "it")


def test_values_that_json_lacks_become_text() -> None:
    found = jsonable({"a": float("inf"), 1: {2, 3}, "b": b"x", "c": "\ud800", "d": 2**80, "e": (1, None)})
    assert found == {"a": "inf", "1": [2, 3], "b": "b'x'", "c": "\ufffd" * 3, "d": str(2**80), "e": [1, None]}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_written_trajectory_reads_back_equal() -> None:
    writer = TrajectoryWriter("a", version="2", model="m")
    writer.add_message("system", "rules")
    writer.add_agent_step("I look", calls=[("f", {"x": 1}), ("g", {})], results=["one", None], errors=[True])
    trajectory = writer.trajectory(session_id="s")
    assert parse_trajectory(json.loads(trajectory.to_json()), "it") == trajectory
