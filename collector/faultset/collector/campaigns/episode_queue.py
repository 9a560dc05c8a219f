"""The episodes of a campaign that are still to be run: which is next, whether it may begin, whether it is repeated.

Nothing here runs anything; campaigns of this machine and of the workers of a dask scheduler follow the same rules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from faultset.collector.episodes.host_pressure import ROOM_WINDOW_S, START_WINDOW_S, CpuUse
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.episodes.state_machine import Phase
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan
from faultset.core.printable import brief

OWN_ATTEMPTS = 2
"""How often an episode is run whose failures are its own."""
HOST_ATTEMPTS = 6
"""How often an episode is run at most when the host spoils it."""
PAUSE_S = 20.0
"""How long an episode that the host has spoiled waits for a host that is free, times its attempts."""

_LEAST_SUCCESSES_FOR_ONE_MORE = 2
_DEPLOYED = frozenset({Phase.NEW, Phase.DEPLOY})
_STARTING = _DEPLOYED | {Phase.WARMUP}


class EpisodePhase(NamedTuple):
    """The phase of an episode under way, and when it began, in monotonic seconds."""

    name: str
    began_s: float


@dataclass(frozen=True, kw_only=True)
class HostState:
    """What decides whether one more episode may begin on a host.

    Attributes
    ----------
    running
        How many run there.
    without_load
        How many of them were without load in a part of the time in which `use` was measured.
    use
        How much of the host's processors is used; None when it is not known yet.
    """

    running: int
    without_load: int
    use: CpuUse | None

    @classmethod
    def of(cls, phases: Collection[EpisodePhase], use: Callable[[float], CpuUse | None], now_s: float) -> HostState:
        """Measure a host for as long as it must have had room before one more episode begins.

        Parameters
        ----------
        phases
            Of the episodes that run there.
        use
            Returns what was used in the last seconds, as many as it is told.
        now_s
            Monotonic seconds.
        """
        window_s = START_WINDOW_S if all(phase.name in _STARTING for phase in phases) else ROOM_WINDOW_S
        without_load = sum(
            phase.name in _DEPLOYED or (phase.name == Phase.WARMUP and now_s - phase.began_s < window_s)
            for phase in phases
        )
        return cls(running=len(phases), without_load=without_load, use=use(window_s))


@dataclass(frozen=True, kw_only=True)
class Room:
    """Whether one more episode may begin now.

    Attributes
    ----------
    held_back
        Why none may begin, unless that is too obvious to tell: all slots are taken, or another has just begun.
    use
        How much of the host's processors is used; None when it is unknown.
    """

    is_free: bool
    held_back: str = ""
    use: CpuUse | None = None


@dataclass(frozen=True, kw_only=True)
class WaitingEpisode:
    """An episode to be run.

    Attributes
    ----------
    attempt
        Which of its runs comes next, from 1.
    own_failures
        How many of its runs failed for another reason than the host.
    begin_s
        Until when it waits for a host that is free, in monotonic seconds.
    repairs
        What is done about its fault; an episode with repairs is not written.
    """

    plan: Plan
    repairs: tuple[RepairOrder, ...] = ()
    attempt: int = 1
    own_failures: int = 0
    begin_s: float = 0.0


class HostLimit:
    """How many episodes may run at a time on one host.

    A quarter less run at a time after the host has spoiled one, one less at least, and one more after as many that
    succeed as run at a time, two at least, so that few of them are spoiled in the long run. What spoils several that
    run beside each other is one event, and counts once.

    Parameters
    ----------
    most
        How many run at a time at most.
    clock
        Returns monotonic seconds.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._limit, self._succeeded = most, most, 0
        self._clock, self._lowered_s = clock, -math.inf

    def reason_to_wait(self, host: HostState) -> str:
        """Say why no further episode may begin on the host now; empty when one may."""
        if host.running >= self._most:
            return f"{host.running} run already"
        if host.running >= self._limit:
            return f"the host was too busy for more than {self._limit} at a time"
        if host.running and host.use is None:
            return "how busy the host is has not been measured yet"
        if host.running and host.use and not host.use.has_room(host.without_load):
            return f"the host is short of CPU: {host.use}"
        return ""

    def take(self, outcome: EpisodeOutcome, started_s: float) -> None:
        """Take in how a run on the host has ended that started at that monotonic time."""
        if outcome.spoiled_by_host:
            self._succeeded = 0
            if started_s > self._lowered_s:
                self._limit, self._lowered_s = max(1, self._limit - max(1, self._limit // 4)), self._clock()
        elif not outcome.failure:
            self._succeeded += 1
            if self._succeeded >= max(self._limit, _LEAST_SUCCESSES_FOR_ONE_MORE):
                self._limit, self._succeeded = min(self._most, self._limit + 1), 0


_LONGEST_REASON = 240
"""How many characters of a reason a notice tells: a void episode names endpoint and numbers at its end."""


class EpisodeQueue:
    """Episodes that wait, in the order in which they are run.

    Attributes
    ----------
    notices
        Sentences on what was repeated, and why in short.
    """

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
        """Say why no episode should begin on a host that is used so; empty when one may."""
        if use and use.is_busy and all(self._clock() < one.begin_s for one in self._waiting):
            return f"the host is short of CPU: {use}"
        return ""

    def next(self) -> WaitingEpisode:
        """Remove and return the episode that begins now: the first whose pause is over, or else the first."""
        now = self._clock()
        place = next((place for place, one in enumerate(self._waiting) if now >= one.begin_s), 0)
        return self._waiting.pop(place)

    def extend(self, episodes: Iterable[WaitingEpisode]) -> None:
        """Add further episodes, which run after the others."""
        self._waiting.extend(episodes)

    def repeat(self, episode: WaitingEpisode, outcome: EpisodeOutcome) -> bool:
        """Take in how a run ended and say whether it is repeated, which it is after all others."""
        if not outcome.failure:
            return False
        own_failures = episode.own_failures + (not outcome.spoiled_by_host)
        may_repeat = outcome.retriable and not outcome.interrupted
        if not may_repeat or own_failures >= OWN_ATTEMPTS or episode.attempt >= HOST_ATTEMPTS:
            return False
        pause_s = self._pause_s * episode.attempt if outcome.spoiled_by_host else 0.0
        begin_s = self._clock() + pause_s
        self._waiting.append(replace(episode, attempt=episode.attempt + 1, own_failures=own_failures, begin_s=begin_s))
        cause = ", which is put down to the host" if outcome.spoiled_by_host else ""
        self.notices.append(
            f"{episode.plan.episode}  {episode.plan.title}: attempt {episode.attempt} is void "
            f"({brief(outcome.failure, _LONGEST_REASON)}){cause}; it is repeated after the others"
        )
        return True
