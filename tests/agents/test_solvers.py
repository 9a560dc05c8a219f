"""Solvers: what each agent offers its model, and how it goes on; asked of a server that speaks OpenAI's protocol."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import eval as run_task
from inspect_ai.log import EvalSample
from inspect_ai.model import get_model
from inspect_ai.solver import Solver

from faultset.agents.solvers import flash, gpt_w_shell, random_agent, react, scripted, stratus
from faultset.evaluators.agent_tasks.recorded import detection, localization
from tests.agents.chat_server import Scripted, chat_server, failed, in_turn, said

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""Of the connections that Inspect keeps to its models."""


def teardown_module() -> None:
    """Free those connections while the filter holds, so that no later test is blamed for them."""
    gc.collect()


SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
FAULTY = "a5edb68659bc"
DONE = said("done", ("submit_localization", {"services": ["geo"]}))
PODS = ("kubectl", {"command": "kubectl get pods"})


def solved(solver: Solver, model: Any, folder: Path, task: Any = localization, **options: Any) -> list[EvalSample]:
    more = {"protocol": "oracle"} if task is localization else {}
    asked = task(dataset=str(SAMPLE), episodes=FAULTY, **more)
    (log,) = run_task(asked, model=model, solver=solver, log_dir=str(folder / "logs"), display="none", **options)
    assert log.status == "success", log.error
    return log.samples or []


def requests_of(solver: Solver, folder: Path, *replies: Scripted) -> tuple[EvalSample, list[dict[str, Any]]]:
    with chat_server(in_turn(*replies)) as server:
        model = get_model("openai-api/local/m", base_url=server.base_url, api_key="none", memoize=False)
        (sample,) = solved(solver, model, folder)
    return sample, server.requests


def offered(request: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in request["tools"]}


def words_of(messages: Sequence[dict[str, Any]], role: str) -> list[str]:
    return [str(one["content"]) for one in messages if one["role"] == role]


@pytest.mark.parametrize("solver", [react, gpt_w_shell, flash, stratus])
def test_every_agent_ends_with_its_submission(solver: Any, tmp_path: Path) -> None:
    sample, requests = requests_of(solver(), tmp_path, said("look", PODS), DONE)
    assert sample.store["faultset"]["answer"] == {"services": ["geo"], "ordered": True}
    assert "geo" in words_of(requests[-1]["messages"], "tool")[0]


def test_a_shell_agent_has_kubectl_alone_and_makes_one_call_in_a_reply(tmp_path: Path) -> None:
    sample, requests = requests_of(gpt_w_shell(), tmp_path, said("both", PODS, PODS), DONE)
    assert offered(requests[0]) == {"kubectl", "submit_localization"}
    assert sample.store["faultset"]["calls"]["kubectl"] == 1


def test_react_is_reminded_of_its_form_after_each_result(tmp_path: Path) -> None:
    _, requests = requests_of(react(), tmp_path, said("look", PODS), DONE)
    assert requests[-1]["messages"][-1]["content"].startswith("Do not repeat an action whose result you already have.")


def test_flash_gives_its_model_the_hint_of_a_second_opinion(tmp_path: Path) -> None:
    _, requests = requests_of(flash(), tmp_path, said("look", PODS), said("Check geo next."), DONE)
    assert "tools" not in requests[1]
    assert "The end of the conversation:" in requests[1]["messages"][-1]["content"]
    assert requests[2]["messages"][-1]["content"] == "Hint: Check geo next."


def test_the_last_reply_may_only_submit(tmp_path: Path) -> None:
    sample, requests = requests_of(stratus(max_steps=2), tmp_path, said("look", PODS), said("hm"))
    assert offered(requests[-1]) == {"submit_localization"}
    assert sample.store["faultset"]["stopped_by"] == "step_limit"


def test_a_reply_without_a_call_is_asked_for_one(tmp_path: Path) -> None:
    _, requests = requests_of(react(), tmp_path, said("It is geo."), DONE)
    assert words_of(requests[-1]["messages"], "user")[-1].startswith("Your reply has no tool call.")


def test_a_conversation_that_is_too_long_loses_its_oldest_steps(tmp_path: Path) -> None:
    too_long = failed(400, "This model's maximum context length is 8192 tokens.")
    too_long.body["error"]["code"] = "context_length_exceeded"
    looks = [said("look", ("get_logs", {"limit": number})) for number in range(1, 7)]
    sample, requests = requests_of(stratus(), tmp_path, *looks, too_long, DONE)
    assert sample.store["faultset"]["status"] == "ok"
    assert len(requests[-1]["messages"]) < len(requests[-2]["messages"])


def test_a_control_answers_the_same_again_and_epochs_differ(tmp_path: Path) -> None:
    def answers(solver: Solver, name: str) -> list[Any]:
        samples = solved(solver, "none", tmp_path / name, detection, epochs=6)
        return [sample.store["faultset"]["answer"]["fault"] for sample in samples]

    first = answers(random_agent(), "first")
    assert answers(random_agent(), "again") == first
    assert {*first} == {True, False}
    assert {*answers(scripted(), "scripted")} == {True}
