"""The controls look at what they say, and answer every kind of question."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.agents.interface.session import SESSION_TASKS, AgentSession
from faultset.agents.registry import reference_agent
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.run import run_agent
from faultset.agents.runs.record import AgentRun
from faultset.core.errors import UsageError
from faultset.datasets import open_dataset

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


def answered(name: str, episode: str, task: str, seed: int = 0) -> AgentRun:
    session = AgentSession(open_dataset(SAMPLE)[episode].tools(), task)  # type: ignore[arg-type]
    return run_agent(reference_agent(name), session, AttemptLimits(), problem_seed=seed).run


@pytest.mark.parametrize("name", ["scripted", "random-agent"])
@pytest.mark.parametrize("task", SESSION_TASKS)
def test_controls_answer_every_task(name: str, task: str) -> None:
    run = answered(name, "a5edb68659bc", task)
    assert (run.status, run.status_reason) == ("ok", "")


def test_the_runbook_blames_the_service_whose_pod_restarted_and_a_service_that_others_fail_to_call() -> None:
    restarted, unreachable = (
        answered("scripted", episode, "all").answer for episode in ("a5edb68659bc", "01084746c57a")
    )
    assert (restarted or {})["services"][0] == "geo"
    assert (unreachable or {})["services"][0] == "profile"


def test_the_runbook_finds_nothing_in_a_healthy_system() -> None:
    run = answered("scripted", "0d3c530732fb", "all")
    assert run.answer is not None
    assert (run.answer["fault"], run.answer["services"], run.answer["system_level"]) == (False, [], None)


def test_the_guess_asks_nothing_and_depends_on_the_seed_alone() -> None:
    first, again, other = (answered("random-agent", "a5edb68659bc", "all", seed) for seed in (1, 1, 2))
    assert first.tool_calls == 1
    assert first.answer == again.answer != other.answer


def test_an_unknown_agent_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r'"scriptd".*scripted'):
        reference_agent("scriptd")
