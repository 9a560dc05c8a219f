"""The loop that runs the episodes of a campaign on any executor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import EpisodeQueue, SlotState, WaitingEpisode
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.hosts import PlatformHost
from faultset.core.errors import PlatformError
from faultset.core.printable import count_text

POLL_INTERVAL_S = 0.25

_log = logging.getLogger(__name__)


class EpisodeInProgress(Protocol):
    """A running episode, on this machine or on a worker."""

    @property
    def plan(self) -> Plan:
        """Plan of the episode."""
        ...

    @property
    def phase(self) -> str:
        """The phase that the episode reported last."""
        ...

    @property
    def started(self) -> float:
        """Start in monotonic seconds."""
        ...


class Executor(Protocol):
    """Runs episodes as processes on this machine, or on the workers of a dask scheduler."""

    @property
    def location(self) -> str:
        """Path or URL of the target folder."""
        ...

    def check_slot(self) -> SlotState:
        """Return whether one more episode may start now."""
        ...

    def start(self, waiting: WaitingEpisode) -> EpisodeInProgress:
        """Start an episode; a slot must be free."""
        ...

    def wait(self, timeout_s: float) -> Sequence[tuple[WaitingEpisode, EpisodeResult]]:
        """Wait until an episode ends or the timeout expires; return all that ended since the last call."""
        ...

    def stop(self) -> None:
        """Make all running episodes undo their changes and end."""
        ...


class ExecutorLost(PlatformError):
    """The executor disappeared together with its running episodes; the message names it."""


class CampaignHost(Protocol):
    """The machines on which the episodes of a campaign run."""

    @property
    def local_host(self) -> PlatformHost:
        """This machine as host of the platform; it undoes the changes of killed runs."""
        ...

    def check(self) -> list[str]:
        """Return sentences for the user; raise PlatformError if episodes cannot run."""
        ...

    def episode_capacity(self) -> int:
        """Return the maximum number of concurrent episodes."""
        ...

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return the missing capabilities among `needs`, with the reasons."""
        ...

    def machines(self) -> dict[str, Any]:
        """Describe the machines for a version's provenance."""
        ...

    def open_executor(self, *, campaign: str, jobs: int, lock: int) -> AbstractContextManager[Executor]:
        """Return an executor for a campaign; closing it ends all episodes.

        Parameters
        ----------
        campaign
            Id of the campaign; its file is in the dataset.
        jobs
            Maximum number of concurrent episodes on this machine.
        lock
            Descriptor of the dataset's lock. Episodes on this machine inherit it. If this process is killed, the
            dataset stays locked until they have undone their changes.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CampaignProgress:
    """State of a running campaign.

    Attributes
    ----------
    running
        Running episodes by id.
    finished
        Results in the order in which episodes ended.
    waiting
        Number of episodes that have not started.
    wait_reason
        Why no waiting episode starts although fewer than the maximum are running; empty otherwise.
    notices
        Messages about repeated episodes, oldest first; the log has the complete reasons.
    recorded_earlier_s
        Seconds that an interrupted run of the campaign recorded, by id of the recording.
    """

    running: Mapping[str, EpisodeInProgress]
    finished: Sequence[EpisodeResult]
    waiting: int
    wait_reason: str = ""
    notices: Sequence[str] = ()
    recorded_earlier_s: Mapping[str, float] = field(default_factory=dict)


def run_episodes(
    plans: Sequence[Plan],
    executor: Executor,
    *,
    progress: Callable[[CampaignProgress], None],
    should_stop: Callable[[], bool],
    handle_result: Callable[[EpisodeResult], Sequence[WaitingEpisode]] = lambda result: (),
    repairs: Mapping[str, Sequence[RepairOrder]] = MappingProxyType({}),
) -> list[EpisodeResult]:
    """Run plans and return their results in the order in which they ended.

    A failed episode is run once more, unless it would fail again. An episode disturbed by the host is repeated several
    times, after the others. When `should_stop` returns True, no more episodes start, and running ones undo their
    changes and end.

    Parameters
    ----------
    progress
        Called several times a second.
    handle_result
        Called with each final result; returns further episodes to run.
    repairs
        Repairs of each episode by its id, tried in order until one succeeds; episodes with repairs are not written.

    Raises
    ------
    PlatformError
        The executor disappeared; finished episodes are kept.
    """
    queue = EpisodeQueue(plans, repairs)
    results: list[EpisodeResult] = []
    running: dict[str, EpisodeInProgress] = {}
    is_stopping, wait_reason = False, ""

    def report() -> None:
        progress(
            CampaignProgress(
                running=dict(running),
                finished=tuple(results),
                waiting=len(queue),
                wait_reason=wait_reason,
                notices=tuple(queue.notices),
            )
        )

    report()
    try:
        while running or (queue and not should_stop()):
            if should_stop() and not is_stopping:
                is_stopping = True
                executor.stop()
            wait_reason = "" if should_stop() else _start_episodes(queue, executor, running)
            report()
            for waiting, result in executor.wait(POLL_INTERVAL_S):
                del running[result.episode]
                final = _repeat_or_end(queue, waiting, result, is_stopping=should_stop())
                if final is not None:
                    results.append(final)
                    queue.extend(handle_result(final))
            report()
    except ExecutorLost as error:
        successes = sum(not result.failure for result in results)
        raise PlatformError(
            f"{error}; {executor.location} has {successes} of {count_text(len(plans), 'episode')}. Run the same "
            "command again to continue"
        ) from error
    return results


def _repeat_or_end(
    queue: EpisodeQueue, waiting: WaitingEpisode, result: EpisodeResult, *, is_stopping: bool
) -> EpisodeResult | None:
    """Queue an episode again if that may help; otherwise return its final result."""
    if result.failure:
        _log.info("episode %s, attempt %d is void: %s", result.episode, result.attempts, result.failure)
    episode = waiting.add_void(result.outcome)
    return replace(result, voids=episode.voids) if is_stopping or not queue.repeat(episode, result.outcome) else None


def _start_episodes(queue: EpisodeQueue, executor: Executor, running: dict[str, EpisodeInProgress]) -> str:
    """Start episodes while a slot is free; return why the others wait, or an empty string if the reason is obvious."""
    while queue:
        slot = executor.check_slot()
        reason = slot.wait_reason or queue.reason_to_wait(slot.use)
        if not slot.is_free or reason:
            return reason
        waiting = queue.next()
        running[waiting.plan.episode] = executor.start(waiting)
        _log.info("episode %s starts (%s, attempt %d)", waiting.plan.episode, waiting.plan.title, waiting.attempt)
    return ""
