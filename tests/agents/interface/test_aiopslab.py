from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from faultset.agents.interface.aiopslab import AIOpsLabEnvironment
from faultset.core.errors import UsageError


def said(call: str) -> str:
    return f"Thought: I look.\n```\n{call}\n```"


class Scripted:
    """An agent of AIOpsLab's contract that says what it was told to say."""

    def __init__(self, *calls: str) -> None:
        self.calls, self.heard = list(calls), []

    def init_context(self, problem_desc: str, instructions: str, apis: Mapping[str, str]) -> None:
        assert "hotel" in problem_desc
        assert "submit" in apis

    async def get_action(self, input: str) -> str:  # noqa: A002
        self.heard.append(input)
        return said(self.calls.pop(0)) if self.calls else "I do not know."


def test_an_agent_of_aiopslab_s_contract_finds_the_fault(session) -> None:
    agent = Scripted(
        'exec_shell("kubectl get pods -n hotel | grep geo")',
        'get_logs("hotel", "frontend")',
        'get_metrics("hotel", 5)',
        'read_metrics("/recording/metric_1_300s/container/kpi_container_cpu_usage_seconds_total.csv")',
        'get_traces("hotel", 5)',
        'read_traces("/recording/traces_2_300s.csv")',
        'submit(["geo"])',
    )
    report = asyncio.run(AIOpsLabEnvironment(session("localization")).run(agent))
    assert report["status"] == "ok"
    assert report["answer"]["services"] == ["geo"]
    assert report["steps"] == 7
    pods, logs, tree, metric, spans, shown = agent.heard[1:]
    assert "geo-65f959d876-zqxhz" in pods
    assert "searchHandler" in logs
    assert "kpi_container_cpu_usage_seconds_total.csv" in tree
    assert "timestamp" in metric
    assert "/recording/traces_2_300s.csv" in spans
    assert "SERVICE" in shown


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("no call", "Error parsing response"),
        (said("delete_all()"), "Invalid action: delete_all"),
        (said("get_logs()"), "wrong arguments"),
        (said('get_logs("default", "geo")'), "does not exist"),
        (said('read_metrics("/etc/passwd")'), "not found"),
        (said('read_traces("/etc/passwd")'), "not found"),
        (said('exec_shell("cat /etc/passwd")'), "[ERROR] Command execution failed: Refused"),
        (said('exec_shell("kubectl delete pod x")'), "[ERROR] Command execution failed: Refused"),
        (said("submit()"), "one answer"),
        (said('submit("maybe")'), "neither Yes nor No"),
    ],
)
def test_what_cannot_be_done_is_said_in_aiopslab_s_words(session, message: str, words: str) -> None:
    environment = AIOpsLabEnvironment(session("detection"))
    assert words in environment.act(message)
    assert environment.steps == 1


def test_an_agent_that_never_answers_runs_out_of_steps(session) -> None:
    report = asyncio.run(AIOpsLabEnvironment(session("detection")).run(Scripted(), most_steps=4))
    assert (report["status"], report["steps"]) == ("step_limit", 4)


def test_one_task_is_asked_at_a_time(session) -> None:
    with pytest.raises(UsageError, match="one of the tasks"):
        AIOpsLabEnvironment(session("all"))
