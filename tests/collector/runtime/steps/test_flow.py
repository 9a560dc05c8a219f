"""Steps that consist of steps."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from pydantic import ValidationError

from faultset.collector.runtime.context import RequestContext, StepHandler
from faultset.collector.runtime.steps import GENERIC_STEPS
from faultset.collector.runtime.steps.step import Step
from faultset.collector.spec.app import Operation
from faultset.collector.spec.steps import all_steps


class Pause(Step):
    """Wait, note that it ended, and fail if told so."""

    keyword = "pause"
    s: float
    save: str
    error: str | None = None

    def compile(self, service: Any, location: str) -> StepHandler:
        async def handle(request: RequestContext) -> None:
            now = request.notes.get("under way", 0) + 1
            request.notes["under way"], request.notes["most"] = now, max(now, request.notes.get("most", 0))
            try:
                await asyncio.sleep(self.s)
            finally:
                request.notes["under way"] -= 1
            if self.error:
                raise ValueError(self.error)
            request.values[self.save] = True
            request.notes.setdefault("ended", []).append(self.save)

        return handle


TYPES = {step.keyword: step for step in (*GENERIC_STEPS, Pause)}


def steps_of(*steps: dict[str, Any]) -> Any:
    return Operation.model_validate({"steps": steps}, context={"steps": TYPES}).steps


def carried_out(step: dict[str, Any], **values: Any) -> RequestContext:
    request = RequestContext(values=values, trace=None)
    asyncio.run(run(step, request))
    return request


async def run(step: dict[str, Any], request: RequestContext) -> None:
    (compiled,) = (one.compile(cast(Any, None), "here") for one in steps_of(step))
    waiting = compiled(request)
    if waiting is not None:
        await waiting


def pause(s: float, save: str, error: str | None = None) -> dict[str, Any]:
    return {"pause": {"s": s, "save": save, "error": error}}


def test_branches_run_at_once_and_leave_their_values() -> None:
    request = carried_out({"parallel": {"branches": [[pause(0.02, "slow")], [pause(0, "a"), pause(0, "b")]]}})
    assert request.notes["most"] == 2
    assert request.notes["ended"] == ["a", "b", "slow"]
    assert set(request.values) == {"slow", "a", "b"}


@pytest.mark.parametrize(("on_failure", "ended"), [("join", ["slow"]), ("at_once", None)])
def test_the_first_failure_is_raised_after_the_join_or_at_once(on_failure: str, ended: list[str] | None) -> None:
    request = RequestContext(values={}, trace=None)
    branches = [[pause(0.05, "slow")], [pause(0.02, "x", "second")], [pause(0, "y", "first")]]
    with pytest.raises(ValueError, match="first"):
        asyncio.run(run({"parallel": {"branches": branches, "on_failure": on_failure}}, request))
    assert request.notes.get("ended") == ended
    assert request.notes["under way"] == 0


@pytest.mark.parametrize(
    "second",
    [
        {"set": {"values": {"x": 1}}},
        {"unique_id": {"save": "id", "save_time": "x"}},
        {"when": {"value": 1, "steps": [], "otherwise": [{"set": {"texts": {"x": "1"}}}]}},
    ],
)
def test_two_branches_may_not_save_the_same_name(second: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="only one branch may save 'x'"):
        steps_of({"parallel": {"branches": [[pause(0, "x")], [second]]}})
    rounds = {"for_each": {"items": [1], "at_most": 1, "steps": [second]}}
    assert steps_of({"parallel": {"branches": [[pause(0, "x")], [rounds]]}})


def test_a_request_that_is_given_up_takes_its_branches_along() -> None:
    request = RequestContext(values={}, trace=None)

    async def give_up() -> None:
        task = asyncio.create_task(run({"parallel": {"branches": [[pause(9, "a")], [pause(9, "b")]]}}, request))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert request.notes["under way"] == 0


@pytest.mark.parametrize(
    ("fields", "taken"),
    [({}, "yes"), ({"one_of": ["b"]}, "no"), ({"one_of": ["a", "b"]}, "yes"), ({"value": []}, "no")],
)
def test_a_condition_chooses_between_steps(fields: dict[str, Any], taken: str) -> None:
    step = {"value": "$x", "steps": [pause(0, "yes")], "otherwise": [pause(0, "no")], **fields}
    assert set(carried_out({"when": step}, x="a").values) == {"x", taken}


def test_rounds_see_their_element_keep_what_is_collected_and_are_bounded() -> None:
    step = {"items": "$list", "name": "n", "at_most": 2, "steps": [{"set": {"texts": {"t": "<{n}>"}}}]}
    request = carried_out({"for_each": {**step, "collect": "$t", "save": "all"}}, list=[1, 2, 3])
    assert request.values == {"list": [1, 2, 3], "all": ["<1>", "<2>"]}
    assert carried_out({"for_each": {**step, "collect": "$t", "save": "all"}}).values == {"all": []}


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (3, 3)])
def test_rounds_run_one_after_the_other_or_several_at_once(at_once: int, most: int) -> None:
    step = {"items": "$list", "at_most": 9, "at_once": at_once, "steps": [pause(0.01, "x")], "collect": "$item"}
    request = carried_out({"for_each": {**step, "save": "all"}}, list=[*"abcd"])
    assert request.notes["most"] == most
    assert request.values["all"] == [*"abcd"]


def test_steps_inside_steps_are_found_with_their_places() -> None:
    call = {"call": {"service": "s", "operation": "/o"}}
    inner = {"for_each": {"items": "$l", "at_most": 1, "steps": [call]}}
    steps = steps_of({"parallel": {"branches": [[call], [{"when": {"value": 1, "steps": [], "otherwise": [inner]}}]]}})
    places = {place: step.keyword for place, step in all_steps(steps)}
    deepest = (0, "parallel", "branches", 1, 0, "when", "otherwise", 0, "for_each", "steps", 0)
    assert places[deepest] == "call"
    assert [*places.values()] == ["parallel", "call", "when", "for_each", "call"]
