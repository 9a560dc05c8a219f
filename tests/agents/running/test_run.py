"""A run of an agent ends in a record, whatever the agent does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faultset.agents.interface.session import AgentSession
from faultset.agents.running.contract import Agent, Attempt
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.run import run_agent
from faultset.core.errors import UsageError
from faultset.datasets import open_dataset
from faultset.datasets.tools.clock import ViewClock

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
EPISODE = "a5edb68659bc"


def agent_of(act: Callable[[Attempt], None]) -> Agent:
    class Made:
        name, title, version, kind = "made", "made in a test", "1", "agent"
        needs_model = stochastic = False

        def act(self, attempt: Attempt) -> None:
            act(attempt)

    return Made()  # type: ignore[return-value]


def session(task: str = "localization") -> AgentSession:
    episode = open_dataset(SAMPLE)[EPISODE]
    clock = ViewClock(episode.context, episode.context.view_start_ns + 20_000_000_000)
    return AgentSession(episode.tools(clock), task)  # type: ignore[arg-type]


def test_an_answer_is_recorded_with_what_was_asked_and_when() -> None:
    def act(attempt: Attempt) -> None:
        attempt.call("list_objects", {"kind": "Pod"})
        attempt.call("kubectl", {"command": "kubectl delete pod geo"})
        attempt.call("get_object", {"kind": "ConfigMap", "name": "x"})
        attempt.call("wait", {"seconds": 5})
        attempt.call("submit_localization", {"services": ["geo"]})

    done = run_agent(agent_of(act), session(), AttemptLimits(), episode=EPISODE)
    run = done.run
    assert (run.status, run.answer) == ("ok", {"services": ["geo"], "ordered": True})
    assert (run.steps, run.tool_calls, run.refused, run.agent, run.model) == (5, 5, 1, "made", None)
    context = open_dataset(SAMPLE)[EPISODE].context
    assert run.answered_ns == context.view_start_ns + 25_000_000_000
    assert [step.tool_calls[0].function_name for step in done.trajectory.agent_steps if step.tool_calls][-1] == (
        "submit_localization"
    )


def loop(attempt: Attempt) -> None:
    while True:
        attempt.call("list_objects", {"kind": "Pod"})


def crash(attempt: Attempt) -> None:
    raise RuntimeError("a mistake")


def stop(attempt: Attempt) -> None:
    attempt.call("describe_system")


def ask(attempt: Attempt) -> None:
    attempt.ask([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize(
    ("act", "status", "words"),
    [
        (loop, "step_limit", "4 calls without an answer"),
        (crash, "harness_error", "RuntimeError: a mistake"),
        (stop, "no_answer", "stopped without an answer"),
        (ask, "harness_error", "asks a model"),
    ],
)
def test_every_way_to_fail_is_a_status_with_a_reason(act: Callable[[Attempt], None], status: str, words: str) -> None:
    done = run_agent(agent_of(act), session(), AttemptLimits(steps=4))
    assert done.run.status == status
    assert words in done.run.status_reason
    assert done.run.answer is None


@pytest.mark.parametrize(
    ("task", "answer", "words"),
    [
        ("localization", {"services": ["nobody", "nothing"]}, "2 of 2 names are no candidates"),
        ("diagnosis", {"system_level": "moon", "fault_type": "code defect"}, "system_level is none"),
    ],
)
def test_an_answer_outside_the_vocabulary_is_invalid_after_one_correction(
    task: str, answer: dict[str, object], words: str
) -> None:
    def act(attempt: Attempt) -> None:
        while not attempt.answered:
            attempt.call(attempt.problem.submission, answer)

    run = run_agent(agent_of(act), session(task), AttemptLimits()).run
    assert (run.status, run.steps) == ("invalid", 2)
    assert words in run.status_reason


def test_whoever_names_the_folder_of_the_dataset_cheats() -> None:
    def act(attempt: Attempt) -> None:
        attempt.call("query", {"sql": f"SELECT * FROM '{SAMPLE}/episodes/{EPISODE}/truth/label.parquet'"})
        attempt.call("submit_localization", {"services": ["geo"]})

    run = run_agent(agent_of(act), session(), AttemptLimits(), secrets=(str(SAMPLE), EPISODE)).run
    assert run.status == "cheated"
    assert run.answer == {"services": ["geo"], "ordered": True}


def test_a_second_answer_is_refused() -> None:
    def act(attempt: Attempt) -> None:
        attempt.call("submit_localization", {"services": ["geo"]})
        attempt.call("submit_localization", {"services": ["rate"]})

    run = run_agent(agent_of(act), session(), AttemptLimits()).run
    assert run.answer == {"services": ["geo"], "ordered": True}


def test_a_problem_tells_the_alarm_and_nothing_of_the_episode() -> None:
    seen: list[Attempt] = []
    agent = agent_of(seen.append)
    run_agent(agent, session(), AttemptLimits(), alarm_ns=1_795_313_371_000_000_000, episode=EPISODE)
    problem = seen[0].problem
    assert "An alarm was raised at 2026-11-22T02:09:31Z" in problem.instructions
    assert EPISODE not in repr(problem)
    assert str(SAMPLE) not in repr(problem)


@pytest.mark.parametrize("limit", [{"steps": 0}, {"tokens": 0}, {"seconds": 0.0}, {"cost_usd": 0.0}])
def test_a_limit_of_nothing_is_refused(limit: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="leaves nothing to do"):
        AttemptLimits(**limit)  # type: ignore[arg-type]
