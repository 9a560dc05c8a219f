"""How a campaign runs its episodes: one loop, whatever executor runs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import EpisodeQueue, Room, WaitingEpisode
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.hosts import PlatformHost
from faultset.core.errors import PlatformError

LOOK_EVERY_S = 0.25

_log = logging.getLogger(__name__)


class EpisodeInProgress(Protocol):
    """An episode that runs, here or elsewhere."""

    @property
    def plan(self) -> Plan:
        """What is run."""
        ...

    @property
    def phase(self) -> str:
        """The phase that it was last known to be in."""
        ...

    @property
    def started(self) -> float:
        """When it began, in monotonic seconds."""
        ...


class Executor(Protocol):
    """Runs episodes: as processes of this machine, or on the workers of a dask scheduler."""

    @property
    def location(self) -> str:
        """Path or URL of the folder that gets the episodes."""
        ...

    def find_room(self) -> Room:
        """Return whether one more episode may begin now."""
        ...

    def start(self, waiting: WaitingEpisode) -> EpisodeInProgress:
        """Start an episode, for which there must be room."""
        ...

    def wait(self, timeout_s: float) -> Sequence[tuple[WaitingEpisode, EpisodeResult]]:
        """Wait until an episode has ended; return all that have ended since the last call, none after the timeout."""
        ...

    def stop(self) -> None:
        """Make all running episodes undo their changes and end."""
        ...


class ExecutorLost(PlatformError):
    """The executor is gone with the episodes that it ran; the message names the executor."""


class CampaignHost(Protocol):
    """Where the episodes of a campaign run, before any of them is started."""

    @property
    def here(self) -> PlatformHost:
        """This machine as host of the platform; it undoes what killed runs have left."""
        ...

    def check(self) -> list[str]:
        """Return sentences for the user; raise PlatformError when episodes cannot run."""
        ...

    def episode_capacity(self) -> int:
        """Return the maximum number of concurrent episodes."""
        ...

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return the capabilities among `needs` that are missing, with the reason."""
        ...

    def machines(self) -> dict[str, Any]:
        """Return what a version's provenance says of the machines."""
        ...

    def open_executor(self, *, campaign: str, jobs: int, lock: int) -> AbstractContextManager[Executor]:
        """Return an executor for a campaign; when it is closed, no episode runs any more.

        Parameters
        ----------
        campaign
            Id of the campaign, whose file the dataset has.
        jobs
            Maximum number of concurrent episodes of this machine.
        lock
            Descriptor of the dataset's lock. Episodes of this machine inherit it, so that the dataset stays locked
            until they have undone their changes, should this process be killed.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CampaignProgress:
    """State of a campaign under way.

    Attributes
    ----------
    running
        Episodes under way, by id.
    finished
        Results in the order in which episodes ended.
    waiting
        How many episodes are still to be begun.
    held_back
        Why no further episode begins although some wait and more might run at a time; empty when there is no reason.
    notices
        Sentences on episodes that are repeated, oldest first; whole reasons are logged.
    """

    running: Mapping[str, EpisodeInProgress]
    finished: Sequence[EpisodeResult]
    waiting: int
    held_back: str = ""
    notices: Sequence[str] = ()


def run_episodes(
    plans: Sequence[Plan],
    executor: Executor,
    *,
    progress: Callable[[CampaignProgress], None],
    should_stop: Callable[[], bool],
    take: Callable[[EpisodeResult], Sequence[WaitingEpisode]] = lambda result: (),
    repairs: Mapping[str, Sequence[RepairOrder]] = MappingProxyType({}),
) -> list[EpisodeResult]:
    """Run plans and return their results in the order in which they ended.

    An episode that fails is run once more, unless its failure is certain to repeat. One that the host has spoiled is
    repeated several times, after the others. When `should_stop` returns True, no more are begun, and those under way
    undo their changes and end.

    Parameters
    ----------
    progress
        Called several times a second.
    take
        Called with each final result; returns further episodes to run.
    repairs
        What is done about the fault of an episode, by its id, one after the other until one has repaired the
        application; episodes with a repair are not written.

    Raises
    ------
    PlatformError
        The executor is gone; episodes that were finished stay.
    """
    queue = EpisodeQueue(plans, repairs)
    results: list[EpisodeResult] = []
    running: dict[str, EpisodeInProgress] = {}
    is_stopping, held_back = False, ""

    def report() -> None:
        progress(
            CampaignProgress(
                running=dict(running),
                finished=tuple(results),
                waiting=len(queue),
                held_back=held_back,
                notices=tuple(queue.notices),
            )
        )

    report()
    try:
        while running or (queue and not should_stop()):
            if should_stop() and not is_stopping:
                is_stopping = True
                executor.stop()
            held_back = "" if should_stop() else _start_episodes(queue, executor, running)
            report()
            for waiting, result in executor.wait(LOOK_EVERY_S):
                del running[result.episode]
                if result.failure:
                    _log.info("episode %s, attempt %d is void: %s", result.episode, result.attempts, result.failure)
                if should_stop() or not queue.repeat(waiting, result.outcome):
                    results.append(result)
                    queue.extend(take(result))
            report()
    except ExecutorLost as error:
        done = sum(not result.failure for result in results)
        raise PlatformError(
            f"{error}; {done} of {len(plans)} episodes that were to be run are in {executor.location}, run the same "
            "command again to go on"
        ) from error
    return results


def _start_episodes(queue: EpisodeQueue, executor: Executor, running: dict[str, EpisodeInProgress]) -> str:
    """Start episodes while there is room; return why the others wait, or nothing if that need not be said."""
    while queue:
        room = executor.find_room()
        reason = room.held_back or queue.reason_to_wait(room.use)
        if not room.is_free or reason:
            return reason
        waiting = queue.next()
        running[waiting.plan.episode] = executor.start(waiting)
        _log.info("episode %s starts (%s, attempt %d)", waiting.plan.episode, waiting.plan.title, waiting.attempt)
    return ""
