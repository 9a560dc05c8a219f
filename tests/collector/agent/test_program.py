"""What can be asked of the program that impairs pods, through its socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_agent import GEO, Agent

from faultset.collector.agent.impairments import NetworkImpairment
from faultset.collector.agent.pods import OwnPod
from faultset.collector.agent.program import AgentServer, ask, print_clock
from faultset.collector.agent.protocol import AgentError

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.delay.close()


@pytest.fixture
def send(agent: Agent, tmp_path: Path) -> Iterator[Ask]:
    path = tmp_path / "run" / "agent.sock"
    with AgentServer(path, agent.verbs) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield lambda verb, **arguments: json.loads(ask(path, verb, arguments))
        server.shutdown()
        thread.join()


def test_impair_packets_and_lift_follow_each_other(send: Ask, agent: Agent) -> None:
    assert send("impair", pod=GEO, impairment={"kind": "loss", "probability": 0.3}, lease_s=20) == {}
    assert agent.held.impaired == {GEO: (NetworkImpairment(kind="loss", probability=0.3), 20)}
    assert send("packets", pod=GEO) == {"packets": 42}
    assert send("renew", pod=GEO) == {"renewed": True}
    assert send("renew", pod="x") == {"renewed": False}
    assert send("lift", pod=GEO) == {}
    assert send("packets", pod=GEO) == {"packets": 0}


def test_a_pod_can_be_lifted_by_name(send: Ask, agent: Agent) -> None:
    agent.held.impaired[GEO] = (NetworkImpairment(kind="partition"), 30)
    send("lift", pod="rate-1")
    assert agent.held.impaired
    send("lift", pod="geo-1")
    assert not agent.held.impaired


def test_what_the_kernel_cannot_do_is_refused_before_it_is_tried(send: Ask, agent: Agent) -> None:
    answer = send("impair", pod=GEO, impairment={"kind": "delay", "latency_s": 0.2})
    assert answer == {"error": "delay is not supported here: the kernel does not support netem"}
    assert agent.held.impaired == {}
    assert send("capabilities")["delay"] is False


@pytest.mark.parametrize(
    ("verb", "arguments", "sentence"),
    [
        ("impair", {"impairment": {"kind": "partition"}}, "missing 1 required positional argument: 'pod'"),
        ("impair", {"pod": GEO, "impairment": {"kind": "rm"}}, "an impairment must have a kind"),
        ("impair", {"pod": "x", "impairment": {"kind": "partition"}}, "does not belong to namespace"),
        ("remove-volumes", {"paths": ["/etc"]}, "volumes must be below"),
        ("reboot", {}, "the verb must be one of capabilities, node, impair"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    verb: str, arguments: dict[str, Any], sentence: str, send: Ask
) -> None:
    assert sentence in send(verb, **arguments)["error"]


def test_nobody_answers_where_nothing_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.collector.agent.program._START_TIMEOUT_S", 0.0)
    with pytest.raises(AgentError, match="nothing listens at"):
        ask(tmp_path / "agent.sock", "renew", {"pod": GEO})


def test_the_clock_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_clock()
    times = [int(line) for line in capsys.readouterr().out.split()]
    assert times == sorted(times)
    assert len(times) > 1


def test_inside_of_a_pod_its_own_network_is_impaired_and_no_container_killed() -> None:
    from faultset.collector.agent.active_impairments import ActiveImpairments, Leases
    from faultset.collector.agent.capabilities import Abilities
    from faultset.collector.agent.program import SchedulingDelay, Verbs

    impaired: list[NetworkImpairment] = []

    class OwnNetwork:
        def impair(self, impairment: NetworkImpairment) -> None:
            impaired.append(impairment)

        def lift(self) -> None:
            impaired.clear()

        def packets(self) -> int:
            return 7

    pods, delay = OwnPod(), SchedulingDelay()
    active = ActiveImpairments(pods, Leases(), lambda descriptor: OwnNetwork())  # type: ignore[arg-type,return-value]
    verbs = Verbs(pods, active, Abilities(variant="", reasons={}).without(pods.unsupported_verbs), delay)
    assert verbs.answer({"verb": "impair", "pod": "any", "impairment": {"kind": "partition"}}) == {}
    assert impaired == [NetworkImpairment(kind="partition")]
    assert verbs.answer({"verb": "packets", "pod": "any"}) == {"packets": 7}
    assert "only the node agent can kill" in verbs.answer({"verb": "kill", "pod": "any", "container": "a"})["error"]
    active.lift_all()
    assert impaired == []
    delay.close()
