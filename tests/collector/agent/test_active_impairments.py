"""Leases, and what is held under them, with a network that only remembers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.collector.agent.active_impairments import Holding
from faultset.collector.agent.cgroups import Place
from faultset.collector.agent.errors import Refusal
from faultset.collector.agent.impairments import Disturbance
from faultset.collector.agent.leases import LONGEST_S, Leases
from faultset.collector.agent.pods import Pods, Process

GEO, RATE = "a570e514-5f17-4e87-a049-2fa201289d9e", "fd6e7b1c-0000-4000-8000-000000000001"
LOSS, PARTITION = Disturbance(kind="loss", probability=0.3), Disturbance(kind="partition")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Kernel:
    """Remembers what disturbs which namespace, a namespace being a file."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.disturbed: dict[int, Disturbance] = {}
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

        def disturb(self, disturbance: Disturbance) -> None:
            self.kernel.disturbed[self.number] = disturbance
            if self.kernel.broken:
                raise Refusal("the kernel does not want to")

        def lift(self) -> None:
            if self.kernel.broken and self.kernel.disturbed:
                self.kernel.broken = False
                raise Refusal("the kernel is busy")
            self.kernel.disturbed.pop(self.number, None)

        def is_marked(self) -> bool:
            return self.number in self.kernel.disturbed

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

    def processes(self, uid: str | None = None) -> list[Process]:
        places = [Place(pod_uid=one, container_id=None) for one in sorted(self.alive)]
        return [Process(pid=1, place=place, network="net:[1]", started=0, is_first=True) for place in places]

    def network_of(self, uid: str) -> int:
        self.check(uid)
        if uid not in self.alive:
            raise Refusal(f"pod {uid} has no process on this node")
        return self.kernel.open(uid)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Kernel(tmp_path))


@pytest.fixture
def holding(node: Node, clock: Clock) -> Iterator[Holding]:
    made = Holding(node, Leases(clock), node.kernel.of)  # pyright: ignore[reportArgumentType]
    yield made
    made.lift_all()
    assert not made.pods()


def test_a_lease_ends_when_nobody_renews_it(holding: Holding, node: Node, clock: Clock) -> None:
    holding.impair(GEO, LOSS, 30)
    clock.now = 29.9
    holding.lift_expired()
    assert list(node.kernel.disturbed.values()) == [LOSS]
    clock.now = 30.0
    holding.lift_expired()
    assert node.kernel.disturbed == {}
    assert holding.pods() == []


def test_a_lease_goes_on_while_it_is_renewed(holding: Holding, node: Node, clock: Clock) -> None:
    holding.impair(GEO, LOSS, 30)
    for clock.now in (20.0, 40.0, 60.0):
        assert holding.renew([GEO]) == []
        holding.lift_expired()
    assert node.kernel.disturbed
    clock.now = 90.0
    holding.lift_expired()
    assert not node.kernel.disturbed


def test_whoever_renews_hears_which_leases_are_gone(holding: Holding, clock: Clock) -> None:
    holding.impair(GEO, LOSS, 30)
    assert holding.renew([GEO, RATE]) == [RATE]
    clock.now = 31.0
    holding.lift_expired()
    assert holding.renew([GEO]) == [GEO]


def test_pods_have_leases_of_their_own(holding: Holding, node: Node, clock: Clock) -> None:
    holding.impair(GEO, LOSS, 30)
    clock.now = 20.0
    holding.impair(RATE, PARTITION, 30)
    clock.now = 35.0
    holding.lift_expired()
    assert list(node.kernel.disturbed.values()) == [PARTITION]


def test_a_second_disturbance_replaces_the_first(holding: Holding, node: Node) -> None:
    holding.impair(GEO, LOSS, 30)
    holding.impair(GEO, PARTITION, 30)
    assert list(node.kernel.disturbed.values()) == [PARTITION]
    assert holding.pods() == [GEO]


def test_lifting_twice_or_what_was_never_disturbed_does_no_harm(holding: Holding) -> None:
    holding.impair(GEO, LOSS, 30)
    holding.lift(GEO)
    holding.lift(GEO)
    holding.lift(RATE)
    assert holding.packets(GEO) == 0


def test_a_disturbance_that_half_failed_leaves_nothing(holding: Holding, node: Node) -> None:
    node.kernel.broken = True
    with pytest.raises(Refusal):
        holding.impair(GEO, LOSS, 30)
    holding.lift_all()
    assert node.kernel.disturbed == {}


def test_a_lift_that_fails_is_tried_again(holding: Holding, node: Node, clock: Clock) -> None:
    holding.impair(GEO, LOSS, 30)
    node.kernel.broken = True
    clock.now = 30.0
    holding.lift_expired()
    assert holding.pods() == [GEO]
    clock.now = 31.0
    holding.lift_expired()
    assert node.kernel.disturbed == {}


def test_what_is_disturbed_can_be_lifted_after_the_pods_last_process(holding: Holding, node: Node) -> None:
    holding.impair(GEO, LOSS, 30)
    node.alive.remove(GEO)
    holding.lift(GEO)
    assert node.kernel.disturbed == {}


def test_what_a_dead_agent_left_gets_a_last_lease(holding: Holding, node: Node, clock: Clock) -> None:
    descriptor = node.kernel.open(GEO)
    node.kernel.of(descriptor).disturb(LOSS)
    os.close(descriptor)
    assert holding.take_over(30) == [GEO]
    clock.now = 29.0
    holding.lift_expired()
    assert node.kernel.disturbed
    clock.now = 30.0
    holding.lift_expired()
    assert not node.kernel.disturbed


def test_what_a_dead_agent_left_goes_on_when_it_is_renewed(holding: Holding, node: Node, clock: Clock) -> None:
    descriptor = node.kernel.open(GEO)
    node.kernel.of(descriptor).disturb(LOSS)
    os.close(descriptor)
    holding.take_over(30)
    clock.now = 25.0
    assert holding.renew([GEO]) == []
    clock.now = 50.0
    holding.lift_expired()
    assert node.kernel.disturbed


def test_pods_of_others_are_not_touched(holding: Holding, node: Node) -> None:
    with pytest.raises(Refusal, match="is not one of namespace hotel-1"):
        holding.impair("00000000-0000-4000-8000-000000000009", LOSS, 30)
    assert node.kernel.disturbed == {}


@pytest.mark.parametrize("length", [0, -1, LONGEST_S + 1, float("nan"), True, "30", None])
def test_a_lease_has_a_sensible_length(length: float, holding: Holding, node: Node) -> None:
    with pytest.raises(Refusal, match="a lease lasts"):
        holding.impair(GEO, LOSS, length)
    assert node.kernel.disturbed == {}
