"""The queue of a campaign: which episode is next, whether it may start, and whether it is repeated.

Campaigns on this machine and on dask workers share these rules. Executors run the episodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from faultset.collector.episodes.host_pressure import ROOM_WINDOW_S, START_WINDOW_S, CpuUse
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.episodes.state_machine import Phase
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan
from faultset.core.printable import brief

OWN_ATTEMPTS = 2
"""Maximum number of attempts when the episode itself fails."""
HOST_ATTEMPTS = 6
"""Maximum number of attempts when the host disturbs the episode."""
PAUSE_S = 20.0
"""Pause before a disturbed episode is repeated on a busy host; multiplied by the number of attempts so far."""

_MIN_SUCCESSES_FOR_ONE_MORE = 2
_BEFORE_LOAD = frozenset({Phase.NEW, Phase.DEPLOY})
_STARTING = _BEFORE_LOAD | {Phase.WARMUP}


class EpisodePhase(NamedTuple):
    """Phase of a running episode and its start in monotonic seconds."""

    name: str
    began_s: float


@dataclass(frozen=True, kw_only=True)
class HostState:
    """State of a host, from which `HostLimit` decides whether one more episode may start."""

    running: int
    """Number of running episodes."""
    without_load: int
    """Number of running episodes that had no load during some of the time over which `use` was measured."""
    use: CpuUse | None
    """CPU use of the host; None before the first measurement."""

    @classmethod
    def measure(
        cls, phases: Collection[EpisodePhase], use: Callable[[float], CpuUse | None], now_s: float
    ) -> HostState:
        """Measure a host over the window in which it must have room for one more episode.

        `use` returns the CPU use over the given number of seconds.
        """
        window_s = START_WINDOW_S if all(phase.name in _STARTING for phase in phases) else ROOM_WINDOW_S
        without_load = sum(
            phase.name in _BEFORE_LOAD or (phase.name == Phase.WARMUP and now_s - phase.began_s < window_s)
            for phase in phases
        )
        return cls(running=len(phases), without_load=without_load, use=use(window_s))


@dataclass(frozen=True, kw_only=True)
class SlotState:
    """Whether one more episode may start now."""

    is_free: bool
    wait_reason: str = ""
    """Why no episode may start; empty if all slots are taken or an episode has just started."""
    use: CpuUse | None = None
    """CPU use of the host; None when unknown."""


@dataclass(frozen=True, kw_only=True)
class VoidAttempt:
    """A failed run of an episode."""

    episode: str
    has_fault: bool
    attempt: int
    """Number of the run, from 1."""
    cause: str
    """Kind of the failure, such as "host too busy"."""
    reason: str
    """The complete message."""


@dataclass(frozen=True, kw_only=True)
class WaitingEpisode:
    """An episode to be run."""

    plan: Plan
    repairs: tuple[RepairOrder, ...] = ()
    """Repairs of its fault; an episode with repairs is not written."""
    attempt: int = 1
    """Number of the next run, from 1."""
    own_failures: int = 0
    """Number of runs that failed for reasons other than the host."""
    begin_s: float = 0.0
    """Monotonic time until which it waits for a free host."""
    voids: tuple[VoidAttempt, ...] = ()
    """Failed runs so far."""

    def add_void(self, outcome: EpisodeOutcome) -> WaitingEpisode:
        """Return the episode with this run added to its void attempts if the run failed."""
        if not outcome.failure or outcome.interrupted:
            return self
        void = VoidAttempt(
            episode=self.plan.episode,
            has_fault=bool(self.plan.faults),
            attempt=self.attempt,
            cause=outcome.void_cause,
            reason=outcome.failure,
        )
        return replace(self, voids=(*self.voids, void))


@dataclass(kw_only=True)
class StartedEpisode:
    """A running episode, on this machine or on a worker, as last reported."""

    waiting: WaitingEpisode
    phase: str = "new"
    started: float = field(default_factory=time.monotonic)
    """Start in monotonic seconds."""

    @property
    def plan(self) -> Plan:
        return self.waiting.plan


class HostLimit:
    """Adaptive limit of concurrent episodes on one host.

    After an episode disturbed by the host, the limit falls by 25 %, but at least by 1. It rises by 1 after
    `limit` successes in a row, but at least 2. A disturbance of several concurrent episodes counts once.
    """

    def __init__(self, max_concurrent: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_concurrent, self._limit, self._success_count = max_concurrent, max_concurrent, 0
        self._clock, self._lowered_s = clock, -math.inf

    def reason_to_wait(self, host: HostState) -> str:
        """Return why no further episode may start on the host now; empty when one may."""
        if host.running >= self._max_concurrent:
            return f"at most {self._max_concurrent} run at a time"
        if host.running >= self._limit:
            return f"the host was too busy for more than {self._limit} at a time"
        if host.running and host.use is None:
            return "the host's CPU use has not been measured yet"
        if host.running and host.use and not host.use.has_room(host.without_load):
            return f"the host is short of CPU: {host.use}"
        return ""

    def adapt(self, outcome: EpisodeOutcome, started_s: float) -> None:
        """Adapt the limit to the outcome of a run that started at a monotonic time."""
        if outcome.disturbed_by_host:
            self._success_count = 0
            if started_s > self._lowered_s:
                self._limit, self._lowered_s = max(1, self._limit - max(1, self._limit // 4)), self._clock()
        elif not outcome.failure:
            self._success_count += 1
            if self._success_count >= max(self._limit, _MIN_SUCCESSES_FOR_ONE_MORE):
                self._limit, self._success_count = min(self._max_concurrent, self._limit + 1), 0


_LONGEST_REASON = 240
"""Maximum length of a reason in a notice; long enough for the endpoint and numbers at its end."""


class EpisodeQueue:
    """Waiting episodes in the order in which they run; `notices` explain repetitions to the user."""

    def __init__(
        self,
        plans: Sequence[Plan],
        repairs: Mapping[str, Sequence[RepairOrder]] = MappingProxyType({}),
        *,
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._waiting = [WaitingEpisode(plan=plan, repairs=tuple(repairs.get(plan.episode, ()))) for plan in plans]
        self._pause_s, self._clock = pause_s, clock
        self.notices: list[str] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def reason_to_wait(self, use: CpuUse | None) -> str:
        """Return why no episode should start on a host with this CPU use; empty when one may."""
        if use and use.is_busy and all(self._clock() < episode.begin_s for episode in self._waiting):
            return f"the host is short of CPU: {use}"
        return ""

    def next(self) -> WaitingEpisode:
        """Remove and return the first episode whose pause is over, otherwise the first one."""
        now = self._clock()
        index = next((index for index, episode in enumerate(self._waiting) if now >= episode.begin_s), 0)
        return self._waiting.pop(index)

    def extend(self, episodes: Iterable[WaitingEpisode]) -> None:
        self._waiting.extend(episodes)

    def repeat(self, episode: WaitingEpisode, outcome: EpisodeOutcome) -> bool:
        """Requeue an episode if its run failed and may succeed the next time; return whether it is repeated."""
        if not outcome.failure:
            return False
        own_failures = episode.own_failures + (not outcome.disturbed_by_host)
        may_repeat = outcome.retriable and not outcome.interrupted
        if not may_repeat or own_failures >= OWN_ATTEMPTS or episode.attempt >= HOST_ATTEMPTS:
            return False
        pause_s = self._pause_s * episode.attempt if outcome.disturbed_by_host else 0.0
        begin_s = self._clock() + pause_s
        self._waiting.append(replace(episode, attempt=episode.attempt + 1, own_failures=own_failures, begin_s=begin_s))
        cause = ", probably because of the host" if outcome.disturbed_by_host else ""
        self.notices.append(
            f"{episode.plan.episode}  {episode.plan.title}: attempt {episode.attempt} is void "
            f"({brief(outcome.failure, _LONGEST_REASON)}){cause}; it will be repeated after the others"
        )
        return True
