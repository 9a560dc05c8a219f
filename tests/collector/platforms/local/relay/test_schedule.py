"""TCP's retransmission steps without clock and without I/O."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from faultset.collector.platforms.local.relay.pods import CLEAR, Flow, FlowStep, Link, count_packets

CUT = Link(cut=True)


class Draws(Random):
    """Fixed random numbers: 0 loses a packet, 1 passes it."""

    def __init__(self, *numbers: float):
        super().__init__(0)
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


LOST, PASSED = 0.0, 1.0
LOSSY = Link(loss=0.5)


def retries(flow: Flow, link: Link, count: int) -> list[float]:
    """Return the times of the next `count` retransmissions."""
    instants = []
    for _ in range(count):
        due_s = flow.due_s()
        assert due_s is not None
        instants.append(due_s)
        flow.step(due_s, link)
    return instants


@pytest.mark.parametrize(("size", "count"), [(0, 1), (1, 1), (1448, 1), (1449, 2), (14480, 10)])
def test_bytes_travel_in_packets_of_1448(size: int, count: int) -> None:
    assert count_packets(size) == count


def test_what_is_not_impaired_arrives_at_once() -> None:
    flow = Flow(Random(1))
    assert flow.send(5.0, 3, CLEAR).passed == 3
    assert flow.due_s() == 5.0
    assert flow.step(5.0, CLEAR).delivered == 1
    assert flow.due_s() is None


def test_the_time_out_doubles_until_the_packet_gets_through() -> None:
    flow = Flow(Draws(LOST, LOST, LOST, PASSED))
    assert flow.send(10.0, 1, LOSSY).lost == 1
    assert retries(flow, LOSSY, 2) == pytest.approx([10.2, 10.6])
    step = flow.step(11.4, LOSSY)
    assert (step.passed, step.lost, step.delivered) == (1, 0, 1)


def test_the_time_out_stops_growing_at_two_minutes() -> None:
    flow = Flow(Random(1))
    flow.send(0.0, 1, CUT)
    instants = retries(flow, CUT, 13)
    waits = [late - early for early, late in itertools.pairwise(instants)]
    assert waits[-4:] == pytest.approx([102.4, 120.0, 120.0, 120.0])


def test_what_was_sent_later_waits_behind_a_lost_packet() -> None:
    flow = Flow(Draws(LOST, PASSED, PASSED))
    flow.send(0.0, 1, LOSSY)
    flow.send(0.1, 1, LOSSY)
    assert flow.step(0.1, LOSSY).delivered == 0
    assert flow.due_s() == pytest.approx(0.2)
    assert flow.step(0.2, LOSSY).delivered == 2


def test_only_the_missing_packets_of_a_chunk_are_sent_again() -> None:
    flow = Flow(Draws(LOST, PASSED, PASSED, LOST, PASSED, LOST, PASSED))
    first = flow.send(0.0, 4, LOSSY)
    assert (first.passed, first.lost) == (2, 2)
    assert flow.step(0.2, LOSSY).lost == 1
    assert flow.due_s() == pytest.approx(0.6)
    assert flow.step(0.61, LOSSY) == FlowStep(passed=1, delivered=1)


def test_progress_starts_the_time_out_again() -> None:
    flow = Flow(Draws(LOST, LOST, PASSED, LOST))
    flow.send(0.0, 1, LOSSY)
    flow.send(0.0, 1, LOSSY)
    assert flow.step(0.2, LOSSY).delivered == 1
    assert flow.due_s() == pytest.approx(0.4)


def test_delay_shifts_and_keeps_order() -> None:
    flow = Flow(Random(3))
    jittery = Link(latency_s=1.0, jitter_s=0.9)
    for tenth in range(20):
        flow.send(tenth / 10, 1, jittery)
    arrivals = []
    while (due_s := flow.due_s()) is not None:
        arrivals += [due_s] * flow.step(due_s, jittery).delivered
    assert len(arrivals) == 20
    assert arrivals == sorted(arrivals)
    assert all(arrival >= tenth / 10 + 0.1 for tenth, arrival in enumerate(arrivals))


def test_after_a_cut_is_lifted_the_next_retransmission_arrives() -> None:
    flow = Flow(Random(1))
    flow.send(0.0, 2, CUT)
    assert retries(flow, CUT, 4) == pytest.approx([0.2, 0.6, 1.4, 3.0])
    assert flow.step(4.0, CLEAR).delivered == 0
    assert flow.due_s() == pytest.approx(6.2)
    assert flow.step(6.2, CLEAR).delivered == 1


def test_a_cut_receiver_cuts_the_road_but_its_loss_does_not() -> None:
    assert CLEAR.towards(CUT).cut
    assert CLEAR.towards(Link(loss=0.9)) == CLEAR
    assert LOSSY.towards(CUT) == Link(loss=0.5, cut=True)


def test_the_share_of_lost_packets_is_the_probability() -> None:
    rng = Random(7)
    lost = Link(loss=0.3).draw_losses(rng, 20_000)
    assert 0.28 < lost / 20_000 < 0.32
    assert Link(loss=1.0).draw_losses(rng, 100) == 100
    assert CLEAR.draw_losses(rng, 100) == 0


def test_nearly_nothing_passes_at_99_percent() -> None:
    arrived = 0
    for seed in range(200):
        flow = Flow(Random(seed))
        link = Link(loss=0.99)
        flow.send(0.0, 1, link)
        while (due_s := flow.due_s()) is not None and due_s < 5.0:
            arrived += flow.step(due_s, link).delivered
    assert arrived < 20


def test_one_seed_gives_one_course() -> None:
    def course(seed: int) -> list[float]:
        flow, link, arrivals = Flow(Random(seed)), Link(loss=0.4, latency_s=0.1, jitter_s=0.05), []
        for count in range(1, 9):
            flow.send(0.0, count, link)
        while (due_s := flow.due_s()) is not None:
            arrivals += [due_s] * flow.step(due_s, link).delivered
        return arrivals

    assert course(4) == course(4) != course(5)
