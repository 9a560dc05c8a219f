"""Leases, and what is held under them, with a network that only remembers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.collector.agent.active_impairments import MAX_LEASE_S, ActiveImpairments, Leases
from faultset.collector.agent.impairments import NetworkImpairment
from faultset.collector.agent.pods import PodProcess, Pods, ProcessOwner
from faultset.collector.agent.protocol import AgentError

GEO, RATE = "a570e514-5f17-4e87-a049-2fa201289d9e", "fd6e7b1c-0000-4000-8000-000000000001"
LOSS, PARTITION = NetworkImpairment(kind="loss", probability=0.3), NetworkImpairment(kind="partition")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Kernel:
    """Remembers what impairs which namespace, a namespace being a file."""

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
    """Pods whose processes and namespaces are made up."""

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
    made = ActiveImpairments(node, Leases(clock), node.kernel.of)  # pyright: ignore[reportArgumentType]
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
        assert active.renew([GEO]) == []
        active.lift_expired()
    assert node.kernel.impaired
    clock.now = 90.0
    active.lift_expired()
    assert not node.kernel.impaired


def test_whoever_renews_hears_which_leases_are_gone(active: ActiveImpairments, clock: Clock) -> None:
    active.impair(GEO, LOSS, 30)
    assert active.renew([GEO, RATE]) == [RATE]
    clock.now = 31.0
    active.lift_expired()
    assert active.renew([GEO]) == [GEO]


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
    assert active.renew([GEO]) == []
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
