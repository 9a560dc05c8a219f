"""What runs next, what is held back and what is repeated, without running anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faultset.collector.campaigns.episode_queue import (
    HOST_ATTEMPTS,
    OWN_ATTEMPTS,
    EpisodePhase,
    EpisodeQueue,
    HostLimit,
    HostState,
)
from faultset.collector.episodes.host_pressure import ROOM_WINDOW_S, START_WINDOW_S, CpuUse
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.requests import make_request

PLANS = plan_campaign(make_request(faults=["target-port", "pod-kill"], apps=["hotel"], normal=2, profile="quick"))
DONE = EpisodeOutcome(episode="e", verdict="manifest")
FAILED = EpisodeOutcome(episode="e", failure="it broke")
SPOILED = replace(FAILED, failure="only 0 of 74 requests got a response", disturbed_by_host=True)
FREE = CpuUse(waiting_share=0.1, free_cores=1.2)
FULL = CpuUse(waiting_share=0.99, free_cores=0.0)
USED_BY_OTHERS = CpuUse(waiting_share=0.0, free_cores=0.0)
"""As many processes as cores never pause, and none has to wait for another."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> EpisodeQueue:
    return EpisodeQueue(PLANS, clock=clock)


@pytest.fixture
def host(clock: Clock) -> HostLimit:
    return HostLimit(3, clock=clock)


def recording(running: int, use: CpuUse | None) -> HostState:
    """Return the state of a host where so many episodes record."""
    return HostState(running=running, without_load=0, use=use)


def run_episode(host: HostLimit, clock: Clock, outcome: EpisodeOutcome) -> None:
    """Let an episode begin now and end a while later."""
    started_s = clock.now + 1.0
    clock.now += 100.0
    host.adapt(outcome, started_s)


def test_as_many_run_as_are_allowed_while_the_host_is_free(host: HostLimit) -> None:
    assert [bool(host.reason_to_wait(recording(running, FREE))) for running in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("phases", "window_s"),
    [
        ((), START_WINDOW_S),
        (("new", "deploy", "warm-up"), START_WINDOW_S),
        (("warm-up", "baseline"), ROOM_WINDOW_S),
        (("collect",), ROOM_WINDOW_S),
    ],
)
def test_episodes_follow_quickly_only_until_one_of_them_records(phases: tuple[str, ...], window_s: float) -> None:
    asked: list[float] = []
    HostState.measure([EpisodePhase(name, 0.0) for name in phases], asked.append, now_s=100.0)
    assert asked == [window_s]


@pytest.mark.parametrize(
    ("phases", "without_load"),
    [
        ([("new", 0.0), ("deploy", 0.0)], 2),
        ([("warm-up", 100.0 - START_WINDOW_S / 2)], 1),
        ([("warm-up", 100.0 - START_WINDOW_S)], 0),
        ([("warm-up", 100.0 - START_WINDOW_S), ("baseline", 0.0)], 1),
        ([("warm-up", 100.0 - ROOM_WINDOW_S), ("baseline", 99.0)], 0),
    ],
)
def test_load_is_felt_when_it_was_there_all_the_time_in_which_the_host_was_measured(
    phases: list[tuple[str, float]], without_load: int
) -> None:
    state = HostState.measure([EpisodePhase(*phase) for phase in phases], lambda window_s: FREE, now_s=100.0)
    assert (state.running, state.without_load, state.use) == (len(phases), without_load, FREE)


def test_episodes_that_have_no_load_yet_keep_their_share_of_the_host_free() -> None:
    host = HostLimit(4)
    free = CpuUse(waiting_share=0.1, free_cores=0.9)
    assert host.reason_to_wait(HostState(running=2, without_load=1, use=free)) == ""
    assert "0.9 cores are free" in host.reason_to_wait(HostState(running=2, without_load=2, use=free))


def test_the_first_begins_at_once_and_the_next_when_the_host_was_measured(host: HostLimit) -> None:
    assert host.reason_to_wait(recording(0, None)) == ""
    assert host.reason_to_wait(recording(1, None)) == "the host's CPU use has not been measured yet"


def test_only_one_runs_while_the_host_is_short_of_cpu(host: HostLimit) -> None:
    assert host.reason_to_wait(recording(0, FULL)) == ""
    assert (
        host.reason_to_wait(recording(1, FULL))
        == "the host is short of CPU: 0.0 cores are free, processes wait 99% of the time"
    )
    assert "0.0 cores are free" in host.reason_to_wait(recording(1, USED_BY_OTHERS))
    assert "0.3 cores are free" in host.reason_to_wait(recording(2, CpuUse(waiting_share=0.2, free_cores=0.3)))
    assert host.reason_to_wait(recording(1, FREE)) == ""


def test_one_less_runs_after_the_host_has_spoiled_one_and_one_more_after_as_many_successes_as_run_at_a_time(
    clock: Clock,
) -> None:
    host = HostLimit(4, clock=clock)
    for _ in range(5):
        run_episode(host, clock, SPOILED)
    assert host.reason_to_wait(recording(1, FREE)) == "the host was too busy for more than 1 at a time"
    run_episode(host, clock, DONE)
    assert host.reason_to_wait(recording(1, FREE)) == "the host was too busy for more than 1 at a time"
    run_episode(host, clock, DONE)
    assert host.reason_to_wait(recording(1, FREE)) == ""
    assert host.reason_to_wait(recording(2, FREE)) == "the host was too busy for more than 2 at a time"
    for _ in range(2):
        run_episode(host, clock, DONE)
    assert host.reason_to_wait(recording(3, FREE)) == "the host was too busy for more than 3 at a time"
    for _ in range(2):
        run_episode(host, clock, DONE)
    assert host.reason_to_wait(recording(3, FREE)) == "the host was too busy for more than 3 at a time"
    run_episode(host, clock, DONE)
    assert host.reason_to_wait(recording(3, FREE)) == ""


def test_what_spoils_all_that_run_beside_each_other_lowers_the_limit_once(clock: Clock) -> None:
    host = HostLimit(8, clock=clock)
    started_s, clock.now = clock.now, 400.0
    for _ in range(8):
        host.adapt(SPOILED, started_s)
        clock.now += 5.0
    assert host.reason_to_wait(recording(6, FREE)) == "the host was too busy for more than 6 at a time"
    assert host.reason_to_wait(recording(5, FREE)) == ""
    run_episode(host, clock, SPOILED)
    assert host.reason_to_wait(recording(5, FREE)) == "the host was too busy for more than 5 at a time"


def runs(queue: EpisodeQueue, clock: Clock, outcome: EpisodeOutcome) -> int:
    """Let the first episode always end in the same way, and count its runs."""
    first, count = PLANS[0].episode, 0
    while len(queue):
        clock.now += 1000.0
        episode = queue.next()
        is_first = episode.plan.episode == first
        count += is_first
        queue.repeat(episode, outcome if is_first else DONE)
    return count


def test_an_episode_that_fails_by_itself_is_run_twice(queue: EpisodeQueue, clock: Clock) -> None:
    assert runs(queue, clock, FAILED) == OWN_ATTEMPTS == 2


def test_an_episode_that_the_host_spoils_is_run_more_often_but_not_for_ever(queue: EpisodeQueue, clock: Clock) -> None:
    assert runs(queue, clock, SPOILED) == HOST_ATTEMPTS
    assert len(queue.notices) == HOST_ATTEMPTS - 1


def test_failures_of_the_host_do_not_count_as_its_own(queue: EpisodeQueue, clock: Clock) -> None:
    episode = queue.next()
    for outcome in (SPOILED, SPOILED, FAILED):
        assert queue.repeat(episode, outcome)
        clock.now += 1000.0
        episode = next(one for one in iter(queue.next, None) if one.plan == episode.plan)
    assert episode.attempt == 4
    assert not queue.repeat(episode, FAILED)


@pytest.mark.parametrize("change", [{"retriable": False}, {"interrupted": True}])
def test_what_is_certain_to_fail_again_is_not_repeated(queue: EpisodeQueue, change: dict) -> None:
    assert not queue.repeat(queue.next(), replace(SPOILED, **change))
    assert queue.notices == []


def test_a_spoiled_episode_is_repeated_after_the_others_with_its_reason(queue: EpisodeQueue) -> None:
    spoiled = queue.next()
    assert queue.repeat(spoiled, SPOILED)
    order = [queue.next().plan.episode for _ in range(len(queue))]
    assert order == [*[plan.episode for plan in PLANS[1:]], spoiled.plan.episode]
    (notice,) = queue.notices
    assert "attempt 1 is void (only 0 of 74 requests got a response), probably because of the host" in notice


def test_a_spoiled_episode_waits_for_a_free_host_and_not_for_ever(queue: EpisodeQueue, clock: Clock) -> None:
    for _ in PLANS:
        queue.repeat(queue.next(), SPOILED)
    assert "short of CPU" in queue.reason_to_wait(FULL)
    assert queue.reason_to_wait(FREE) == ""
    clock.now += 60.0
    assert queue.reason_to_wait(FULL) == ""
