"""Agents with a model on the loop, against a scripted server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faultset.agents.interface.session import AgentSession
from faultset.agents.models.openai_server import ModelServer, OpenAIModel
from faultset.agents.models.prices import ModelPrice
from faultset.agents.reference.actions import action_in
from faultset.agents.registry import reference_agent
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.run import FinishedRun, run_agent
from faultset.datasets import open_dataset
from tests.agents.chat_server import Script, Scripted, chat_server, failed, in_turn, said

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
EPISODE = "a5edb68659bc"
PODS = ("kubectl", {"command": "kubectl get pods"})
GEO = ("submit_localization", {"services": ["geo"]})
AGENTS = ("react", "gpt-w-shell", "flash", "rca-agent", "stratus")
PRICE = ModelPrice(as_of="2026-01", prompt=1000.0, cached=100.0, completion=10_000.0)


def ran(
    name: str, script: Script, task: str = "localization", price: ModelPrice | None = PRICE, **limits: Any
) -> tuple[FinishedRun, list[dict[str, Any]]]:
    with chat_server(script) as server:
        session = AgentSession(open_dataset(SAMPLE)[EPISODE].tools(), task)  # type: ignore[arg-type]
        model = OpenAIModel(ModelServer(model="m", base_url=server.base_url, first_wait_s=0.01))
        done = run_agent(reference_agent(name), session, AttemptLimits(**limits), model=model, price=price)
        return done, server.requests


def sensible(body: dict[str, Any], number: int) -> Scripted:
    """Act as a model would: a plan as controller, one look, then the answer."""
    system = body["messages"][0]["content"]
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    if "You lead" in system and not names:
        done = any("Result:" in str(m["content"]) for m in body["messages"])
        plan = {"analysis": "x", "completed": str(done), "instruction": "" if done else "list the pods"}
        return said(json.dumps(plan))
    if "You carry out" in system:
        return said("geo restarted once") if len(body["messages"]) > 3 else said("", PODS)
    if not names:
        return said("Submit geo.")
    return said("I know", GEO) if len(body["messages"]) > 3 or names == ["submit_localization"] else said("hm", PODS)


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_looks_and_answers(name: str) -> None:
    done, requests = ran(name, sensible)
    assert (done.run.status, done.run.answer) == ("ok", {"services": ["geo"], "ordered": True})
    assert done.run.model_calls == len(requests)
    assert done.run.prompt_tokens == 100 * len(requests)
    assert done.run.tool_calls == 2
    assert all(body["stream"] is False for body in requests)
    assert EPISODE not in json.dumps(requests)


def test_flash_is_shown_the_hint_that_it_paid_for() -> None:
    done, requests = ran("flash", sensible)
    assert [m["content"] for m in requests[-1]["messages"] if m["role"] == "user"][-1] == "Hint: Submit geo."
    assert [(s.extra or {}).get("role") for s in done.trajectory.agent_steps] == [None, "hindsight", None]
    assert done.run.steps == 2


def test_the_controller_sees_the_summary_and_the_raw_output_of_the_executor() -> None:
    _, requests = ran("rca-agent", sensible)
    shown = [m["content"] for m in requests[-1]["messages"] if "Result:" in m["content"]]
    assert shown[0].startswith("Result: geo restarted once\n\nRaw output:\nNAME")


def test_stratus_carries_out_one_call_a_step_and_must_answer_in_the_twentieth() -> None:
    def endless(body: dict[str, Any], number: int) -> Scripted:
        last = len(body["tools"]) == 1
        return said("", GEO) if last else said("", ("kubectl", {"command": f"kubectl get pods -n {number}"}), PODS)

    done, requests = ran("stratus", endless)
    assert (len(requests), done.run.status, done.run.tool_calls) == (20, "ok", 20)
    assert "at most 1 in a reply" in json.dumps(requests[1])


def test_parallel_calls_are_all_carried_out_and_answered_by_their_ids() -> None:
    script = in_turn(said("", PODS, ("list_events", {}), ("get_logs", "{not json")), said("", GEO))
    done, requests = ran("react", script)
    tools = [m for m in requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in tools] == ["c0", "c1", "c2"]
    assert tools[2]["content"].startswith("Invalid: the arguments of get_logs are not JSON")
    assert (done.run.tool_calls, done.run.tool_errors) == (4, 1)


def test_two_answers_in_one_reply_are_one_answer() -> None:
    done, _ = ran("react", in_turn(said("", GEO, ("submit_localization", {"services": ["rate"]}))))
    assert done.run.answer == {"services": ["geo"], "ordered": True}


def test_a_model_that_calls_in_text_is_understood() -> None:
    look = said('I look.\n```json\n{"tool": "kubectl", "arguments": {"command": "kubectl get pods"}}\n```')
    done, requests = ran("react", in_turn(look, said('submit_localization(services=["geo"])')))
    assert (done.run.status, done.run.tool_calls) == ("ok", 2)
    assert any(m["content"].startswith("Observation:\nNAME") for m in requests[1]["messages"])


def test_a_server_without_tools_is_told_the_tools_in_text() -> None:
    def script(body: dict[str, Any], number: int) -> Scripted:
        if "tools" in body:
            return failed(400, "tools are not supported by this model")
        return said('```\n{"tool": "submit_localization", "arguments": {"services": ["geo"]}}\n```')

    done, requests = ran("react", script)
    assert (done.run.status, len(requests)) == ("ok", 2)
    assert "- submit_localization(services, ordered?)" in json.dumps(requests[1])


def test_a_reply_without_a_call_is_asked_for_one_with_the_grammar_once() -> None:
    done, requests = ran("react", in_turn(said("I think it is geo."), said("Still geo."), said("", GEO)))
    told = [m["content"] for m in requests[2]["messages"] if m["role"] == "user" and "calls no tool" in m["content"]]
    assert [("in a code block" in text) for text in told] == [True, False]
    assert done.run.status == "ok"


def test_a_conversation_that_is_too_long_is_shortened_until_the_model_takes_it() -> None:
    def script(body: dict[str, Any], number: int) -> Scripted:
        if len(json.dumps(body["messages"])) > 9000:
            return failed(400, "maximum context length exceeded")
        return said("", GEO) if number > 8 else said("", ("get_logs", {"limit": 200, "cursor": 100 * number}))

    done, requests = ran("react", script)
    assert done.run.status == "ok"
    assert all(body["messages"][0]["role"] == "system" for body in requests)
    assert "You diagnose a recorded system" in requests[-1]["messages"][1]["content"]


@pytest.mark.parametrize(
    ("script", "limits", "status", "words"),
    [
        (in_turn(said("", PODS)), {"steps": 4}, "step_limit", "4 steps without an answer"),
        (in_turn(said("", PODS)), {"tokens": 250}, "token_limit", "250 tokens"),
        (in_turn(said("", PODS)), {"cost_usd": 0.5}, "cost_limit", "0.5 US dollars"),
        (in_turn(failed(500, "broken")), {}, "harness_error", "500: broken"),
        (in_turn(Scripted(body={}, delay_s=1)), {"seconds": 0.3}, "harness_error", "in time"),
        (in_turn(failed(400, "maximum context length")), {}, "token_limit", "maximum context length"),
        (in_turn(said("")), {"steps": 3}, "harness_error", "messages of the agent are empty"),
    ],
    ids=["loops", "tokens", "spends", "broken", "hangs", "context", "silent"],
)
def test_every_end_without_an_answer_is_a_status(script: Script, limits: Any, status: str, words: str) -> None:
    done, _ = ran("react", script, **limits)
    assert done.run.status == status
    assert words in done.run.status_reason


def test_costs_are_those_of_the_price_with_cached_tokens_apart() -> None:
    done, _ = ran("react", in_turn(said("", GEO, usage=(1000, 100), cached=400)))
    assert done.run.cost_usd == pytest.approx((600 * 1000 + 400 * 100 + 100 * 10_000) / 1e6)
    assert done.run.tokens_source == "api"


def test_a_model_whose_price_is_not_known_costs_what_nobody_knows() -> None:
    done, _ = ran("react", in_turn(said("", GEO)), price=None)
    assert (done.run.status, done.run.cost_usd, done.run.prompt_tokens) == ("ok", None, 100)


def test_tokens_that_a_server_does_not_count_are_estimated_and_marked() -> None:
    done, _ = ran("react", in_turn(said("", GEO, usage=None)))
    assert done.run.tokens_source == "estimated"
    assert (done.run.prompt_tokens or 0) > 500


@pytest.mark.parametrize(
    "text", ["", "no action", "```\n{broken\n```", '{"tool": "other"}', "kubectl(", "kubectl(1 + x)", "{" * 5000]
)
def test_text_without_a_call_is_no_call(text: str) -> None:
    assert action_in(text, {"kubectl"}) is None
