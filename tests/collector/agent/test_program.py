"""Leases, impaired pods, and the requests and responses of the agent program."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_agent import GEO, Agent

from faultset.collector.agent.networks import AgentError, NetworkImpairment
from faultset.collector.agent.pods import OwnPod, PodProcess, Pods, ProcessOwner
from faultset.collector.agent.program import MAX_LEASE_S, ActiveImpairments, AgentServer, ask, print_clock

RATE = "fd6e7b1c-0000-4000-8000-000000000001"
LOSS, PARTITION = NetworkImpairment(kind="loss", probability=0.3), NetworkImpairment(kind="partition")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Kernel:
    """Records the impairment of each namespace; a namespace is a file."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.impaired: dict[int, NetworkImpairment] = {}
        self.broken = False

    def open(self, uid: str) -> int:
        path = self.folder / uid
        path.touch()
        return os.open(path, os.O_RDONLY)

    def of(self, descriptor: int) -> Kernel.Network:
        return Kernel.Network(self, os.fstat(descriptor).st_ino)

    class Network:
        def __init__(self, kernel: Kernel, number: int):
            self.kernel, self.number = kernel, number

        def impair(self, impairment: NetworkImpairment) -> None:
            self.kernel.impaired[self.number] = impairment
            if self.kernel.broken:
                raise AgentError("the kernel does not want to")

        def lift(self) -> None:
            if self.kernel.broken and self.kernel.impaired:
                self.kernel.broken = False
                raise AgentError("the kernel is busy")
            self.kernel.impaired.pop(self.number, None)

        def is_marked(self) -> bool:
            return self.number in self.kernel.impaired

        def packets(self) -> int:
            return 7


class Node(Pods):
    """Pods with simulated processes and namespaces."""

    def __init__(self, kernel: Kernel):
        super().__init__("hotel-1")
        self.kernel = kernel
        self.alive = {GEO, RATE}

    def names(self) -> dict[str, str]:
        return {GEO: "geo-1", RATE: "rate-1"}

    def processes(self, uid: str | None = None) -> list[PodProcess]:
        owners = [ProcessOwner(pod_uid=uid, container_id=None) for uid in sorted(self.alive)]
        return [PodProcess(pid=1, owner=owner, network="net:[1]", started=0, is_first=True) for owner in owners]

    def open_network(self, uid: str) -> int:
        self.check(uid)
        if uid not in self.alive:
            raise AgentError(f"pod {uid} has no process on this node")
        return self.kernel.open(uid)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Kernel(tmp_path))


@pytest.fixture
def active(node: Node, clock: Clock) -> Iterator[ActiveImpairments]:
    made = ActiveImpairments(node, node.kernel.of, clock=clock)  # pyright: ignore[reportArgumentType]
    yield made
    made.lift_all()
    assert not made.pods()


def test_a_lease_ends_when_nobody_renews_it(active: ActiveImpairments, node: Node, clock: Clock) -> None:
    active.impair(GEO, LOSS, 30)
    clock.now = 29.9
    active.lift_expired()
    assert list(node.kernel.impaired.values()) == [LOSS]
    clock.now = 30.0
    active.lift_expired()
    assert node.kernel.impaired == {}
    assert active.pods() == []


def test_a_lease_goes_on_while_it_is_renewed(active: ActiveImpairments, node: Node, clock: Clock) -> None:
    active.impair(GEO, LOSS, 30)
    for clock.now in (20.0, 40.0, 60.0):
        assert active.renew(GEO)
        active.lift_expired()
    assert node.kernel.impaired
    clock.now = 90.0
    active.lift_expired()
    assert not node.kernel.impaired


def test_whoever_renews_hears_which_leases_are_gone(active: ActiveImpairments, clock: Clock) -> None:
    active.impair(GEO, LOSS, 30)
    assert active.renew(GEO)
    assert not active.renew(RATE)
    clock.now = 31.0
    active.lift_expired()
    assert not active.renew(GEO)


def test_pods_have_leases_of_their_own(active: ActiveImpairments, node: Node, clock: Clock) -> None:
    active.impair(GEO, LOSS, 30)
    clock.now = 20.0
    active.impair(RATE, PARTITION, 30)
    clock.now = 35.0
    active.lift_expired()
    assert list(node.kernel.impaired.values()) == [PARTITION]


def test_a_second_impairment_replaces_the_first(active: ActiveImpairments, node: Node) -> None:
    active.impair(GEO, LOSS, 30)
    active.impair(GEO, PARTITION, 30)
    assert list(node.kernel.impaired.values()) == [PARTITION]
    assert active.pods() == [GEO]


def test_lifting_twice_or_what_was_never_disturbed_does_no_harm(active: ActiveImpairments) -> None:
    active.impair(GEO, LOSS, 30)
    active.lift(GEO)
    active.lift(GEO)
    active.lift(RATE)
    assert active.packets(GEO) == 0


def test_an_impairment_that_half_failed_leaves_nothing(active: ActiveImpairments, node: Node) -> None:
    node.kernel.broken = True
    with pytest.raises(AgentError):
        active.impair(GEO, LOSS, 30)
    active.lift_all()
    assert node.kernel.impaired == {}


def test_a_lift_that_fails_is_tried_again(active: ActiveImpairments, node: Node, clock: Clock) -> None:
    active.impair(GEO, LOSS, 30)
    node.kernel.broken = True
    clock.now = 30.0
    active.lift_expired()
    assert active.pods() == [GEO]
    clock.now = 31.0
    active.lift_expired()
    assert node.kernel.impaired == {}


def test_what_is_disturbed_can_be_lifted_after_the_pods_last_process(active: ActiveImpairments, node: Node) -> None:
    active.impair(GEO, LOSS, 30)
    node.alive.remove(GEO)
    active.lift(GEO)
    assert node.kernel.impaired == {}


def test_what_a_dead_agent_left_gets_a_last_lease(active: ActiveImpairments, node: Node, clock: Clock) -> None:
    descriptor = node.kernel.open(GEO)
    node.kernel.of(descriptor).impair(LOSS)
    os.close(descriptor)
    assert active.adopt(30) == [GEO]
    clock.now = 29.0
    active.lift_expired()
    assert node.kernel.impaired
    clock.now = 30.0
    active.lift_expired()
    assert not node.kernel.impaired


def test_what_a_dead_agent_left_goes_on_when_it_is_renewed(active: ActiveImpairments, node: Node, clock: Clock) -> None:
    descriptor = node.kernel.open(GEO)
    node.kernel.of(descriptor).impair(LOSS)
    os.close(descriptor)
    active.adopt(30)
    clock.now = 25.0
    assert active.renew(GEO)
    clock.now = 50.0
    active.lift_expired()
    assert node.kernel.impaired


def test_pods_of_others_are_not_touched(active: ActiveImpairments, node: Node) -> None:
    with pytest.raises(AgentError, match="does not belong to namespace hotel-1"):
        active.impair("00000000-0000-4000-8000-000000000009", LOSS, 30)
    assert node.kernel.impaired == {}


@pytest.mark.parametrize("length", [0, -1, MAX_LEASE_S + 1, float("nan"), True, "30", None])
def test_a_lease_has_a_sensible_length(length: float, active: ActiveImpairments, node: Node) -> None:
    with pytest.raises(AgentError, match="a lease must last"):
        active.impair(GEO, LOSS, length)
    assert node.kernel.impaired == {}


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
    assert [*send("capabilities")["reasons"]] == ["delay"]


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
    from faultset.collector.agent.program import ActiveImpairments, SchedulingDelay, Verbs

    impaired: list[NetworkImpairment] = []

    class OwnNetwork:
        def impair(self, impairment: NetworkImpairment) -> None:
            impaired.append(impairment)

        def lift(self) -> None:
            impaired.clear()

        def packets(self) -> int:
            return 7

    pods, delay = OwnPod(), SchedulingDelay()
    active = ActiveImpairments(pods, lambda descriptor: OwnNetwork())  # type: ignore[arg-type,return-value]
    verbs = Verbs(pods, active, pods.unsupported_verbs, delay)
    assert verbs.answer({"verb": "impair", "pod": "any", "impairment": {"kind": "partition"}}) == {}
    assert impaired == [NetworkImpairment(kind="partition")]
    assert verbs.answer({"verb": "packets", "pod": "any"}) == {"packets": 7}
    assert "only the node agent can kill" in verbs.answer({"verb": "kill", "pod": "any", "container": "a"})["error"]
    active.lift_all()
    assert impaired == []
    delay.close()
