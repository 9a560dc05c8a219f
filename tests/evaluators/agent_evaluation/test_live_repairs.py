"""Agents repair a live fault on the platform in memory: judged, held to the namespace, undone afterwards."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.agents.runs.storage import read_runs, record_beside
from faultset.agents.trajectories.reading import read_trajectory
from faultset.collector.mitigation.messages import MitigationResult, MitigatorOrder, RepairOrder
from faultset.collector.mitigation.mitigators import load_mitigator
from faultset.core.errors import UsageError
from faultset.core.landlock import landlock_version
from faultset.evaluators.agent_evaluation.agent_mitigator import AGENT_RUNS
from tests.agents.chat_server import Scripted, chat_server, failed, in_turn, said
from tests.collector.mitigation.test_attempts import MITIGATION_PLAN, RIGHT, result_of, run_mitigation, wrong_parts

DONE = said("done", ("submit_mitigation", {"summary": "the port"}))


def order(agent: str, **settings: object) -> RepairOrder:
    chosen = MitigatorOrder(mitigator="agent", settings={"agent": agent, **settings})
    return RepairOrder(name=agent, mitigator=chosen, within_s=4, sustain_s=3)


def kubectl(command: str) -> Scripted:
    return said("I act.", ("kubectl", {"command": command}))


def repaired(folder: Path, *replies: Scripted, agent: str = "react", **settings: object) -> MitigationResult:
    with chat_server(in_turn(*replies)) as server:
        return result_of(folder, order(agent, model="m", base_url=server.base_url, **settings))


def test_an_agent_that_finds_the_wrong_port_repairs_and_the_time_counts_until_clients_are_served(
    tmp_path: Path,
) -> None:
    result = repaired(
        tmp_path,
        kubectl("kubectl get svc geo -o yaml | grep targetPort"),
        said("two", ("kubectl", {"command": RIGHT}), ("wait", {"seconds": 20})),
        DONE,
    )
    assert result.success
    assert wrong_parts(result) == set()
    assert result.repair_s is not None
    assert result.repair_s <= 3, "the system was healthy long before the agent had waited and ended"
    assert [one.status for one in result.commands] == ["done", "done"]
    assert result.mitigator is not None
    assert (result.mitigator["status"], result.mitigator["model_calls"], result.mitigator["prompt_tokens"]) == (
        "ok",
        3,
        300,
    )


def test_what_an_agent_did_is_a_run_beside_the_results(tmp_path: Path) -> None:
    result = repaired(tmp_path, kubectl("kubectl get pods"), DONE)
    assert not result.success
    assert result.mitigator is not None
    load_mitigator("agent").keep(tmp_path / "data", [result.mitigator])
    (run,) = read_runs(tmp_path / "data" / AGENT_RUNS)
    assert (run.task, run.answer, run.not_recorded) == ("mitigation", {"summary": "the port"}, None)
    file = tmp_path / "data" / AGENT_RUNS / run.trajectory_path
    assert record_beside(file) == run
    called = [call.function_name for step in read_trajectory(file).agent_steps for call in step.tool_calls or ()]
    assert called == ["kubectl", "submit_mitigation"]


def test_a_write_outside_of_the_namespace_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "ran"
    with chat_server(
        in_turn(
            kubectl("kubectl -n kube-system delete pod --all"),
            kubectl("kubectl delete node --all"),
            kubectl("kubectl get pods; rm -rf /"),
            DONE,
        )
    ) as server:
        outcome, platform = run_mitigation(folder, order("react", model="m", base_url=server.base_url))
        told = [one["content"] for one in server.requests[-1]["messages"] if one["role"] == "tool"]
    (result,) = outcome.mitigations
    assert [one.status for one in result.commands] == ["refused", "refused"]
    assert "Refused: namespace kube-system is not the application's" in told[0]
    assert "is for a shell" in told[2]
    assert not [call for call in platform.calls if call[0] == "delete"]


def test_harm_that_an_agent_did_is_judged_and_undone(tmp_path: Path) -> None:
    harm = "kubectl delete svc user search"
    result = repaired(tmp_path, kubectl(RIGHT), kubectl(harm), kubectl("kubectl scale deploy geo --replicas 0"), DONE)
    assert not result.success
    assert {"objects", "presence"} <= wrong_parts(result)


def test_an_undo_that_leaves_something_behind_voids_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultset.collector.platforms.fake.FakePlatform.undo", lambda self: None)
    monkeypatch.setattr("faultset.collector.episodes.actions.EpisodeActions._await_recovery", lambda self: None)
    with chat_server(in_turn(kubectl("kubectl delete svc user"), DONE)) as server:
        outcome, _ = run_mitigation(tmp_path, order("react", model="m", base_url=server.base_url))
    assert outcome.failure.startswith("the undo has not restored everything: Service user is missing; Service geo")


@pytest.mark.parametrize(
    ("replies", "settings", "status"),
    [
        ((kubectl("kubectl get pods"),), {"limits": {"steps": 3}}, "step_limit"),
        ((said("I think."), said("I think more.")), {"limits": {"tokens": 200}}, "token_limit"),
    ],
)
def test_however_an_agent_ends_the_attempt_is_judged_and_undone(
    tmp_path: Path, replies: tuple[Scripted, ...], settings: dict[str, object], status: str
) -> None:
    result = repaired(tmp_path, *replies, agent="gpt-w-shell", **settings)
    assert not result.success
    assert result.mitigator is not None
    assert result.mitigator["status"] == status


def test_a_refused_key_is_no_failed_repair_and_everything_is_undone(tmp_path: Path) -> None:
    with chat_server(in_turn(failed(401, "bad key"))) as server:
        outcome, platform = run_mitigation(tmp_path, order("react", model="m", base_url=server.base_url))
    assert outcome.mitigations == ()
    assert not outcome.retriable
    assert outcome.failure.startswith("react could not work: ")
    assert "bad key" in outcome.failure
    assert platform.journal.open_undo_operations() == []


@pytest.mark.parametrize("agent", ["scripted", "random-agent", "flash", "stratus", "rca-agent"])
def test_every_agent_hands_the_system_back(tmp_path: Path, agent: str) -> None:
    script = in_turn(said('{"analysis": "", "completed": "True", "instruction": ""}'), DONE)
    with chat_server(script) as server:
        settings = {} if agent in ("scripted", "random-agent") else {"model": "m", "base_url": server.base_url}
        result = result_of(tmp_path, order(agent, **settings))
    assert result.mitigator is not None
    assert result.mitigator["status"] == "ok"


GUEST = """
class Peeks:
    name, title, version, kind = "peeks", "looks for what was injected", "1", "agent"
    needs_model = stochastic = False

    def act(self, attempt):
        found = attempt.call("kubectl", {"command": "kubectl get svc geo"})
        for place in ("FOLDER/journal.jsonl", "FOLDER/data/earlier.json"):
            try:
                open(place).read()
            except PermissionError:
                continue
            raise RuntimeError("read " + place)
        attempt.call("submit_mitigation", {"summary": found.status})
"""


@pytest.mark.skipif(landlock_version() == 0, reason="this kernel cannot confine processes")
def test_an_agent_of_another_distribution_acts_but_cannot_read_what_was_injected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, folder = tmp_path / "site", tmp_path / "ran"
    info = site / "peeks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: peeks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[faultset.agents]\npeeks = peeking_agent:Peeks\n")
    (site / "peeking_agent.py").write_text(GUEST.replace("FOLDER", str(folder)))
    monkeypatch.syspath_prepend(site)
    folder.mkdir()
    (folder / "data").mkdir()
    (folder / "data" / "earlier.json").write_text("{}")
    try:
        result = result_of(folder, order("peeks"))
    finally:
        sys.modules.pop("peeking_agent", None)
    assert result.mitigator is not None
    assert (result.mitigator["status_reason"], result.mitigator["status"]) == ("", "ok")
    assert [one.status for one in result.commands] == ["done"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"agent": "reakt"}, '"reakt"'),
        ({"agent": "react"}, 'the agent "react" asks a model'),
        ({"agent": "scripted", "base_url": "http://127.0.0.1:1/v1"}, "name it with --model"),
        ({"agent": "scripted", "key": "sk-1"}, "an agent has no setting key"),
        ({"agent": "scripted", "limits": {"steps": 0}}, "leaves nothing to do"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load_mitigator("agent").title(settings)


def test_a_repeated_fault_goes_on_while_an_agent_thinks(tmp_path: Path) -> None:
    plan = replace(MITIGATION_PLAN, fault="pod-kill")
    with chat_server(in_turn(said("w", ("wait", {"seconds": 35})), DONE)) as server:
        outcome, platform = run_mitigation(tmp_path, order("react", model="m", base_url=server.base_url), plan=plan)
    assert len(outcome.mitigations) == 1
    killed = [call for call in platform.calls if call[0] == "delete" and call[1] == "Pod"]
    assert len(killed) >= 3
