"""The loop that runs the episodes of a campaign on any executor, and the executor for this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any, Protocol

from faultset.collector.campaigns.episode_processes import PROGRAM, EpisodeHost, EpisodeResult, RunningEpisode
from faultset.collector.campaigns.episode_queue import EpisodeQueue, SlotState, StartedEpisode, WaitingEpisode
from faultset.collector.campaigns.output_folder import remove_lost_episode
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.hosts import PlatformHost
from faultset.core.errors import PlatformError
from faultset.core.printable import count_text

POLL_INTERVAL_S = 0.25

_log = logging.getLogger(__name__)


class Executor(Protocol):
    """Runs episodes as processes on this machine, or on the workers of a dask scheduler."""

    @property
    def location(self) -> str:
        """Path or URL of the target folder."""
        ...

    def check_slot(self) -> SlotState:
        """Return whether one more episode may start now."""
        ...

    def start(self, waiting: WaitingEpisode) -> StartedEpisode:
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
        """Return an executor for the campaign of this id; closing it ends all episodes.

        `jobs` limits the concurrent episodes on this machine. `lock` is the descriptor of the dataset's lock, which
        episodes on this machine inherit. If this process is killed, the dataset stays locked until they have undone
        their changes.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CampaignProgress:
    """State of a running campaign."""

    running: Mapping[str, StartedEpisode]
    """Running episodes by id."""
    finished: Sequence[EpisodeResult]
    """Results in the order in which episodes ended."""
    waiting: int
    """Number of episodes that have not started."""
    wait_reason: str = ""
    """Why no waiting episode starts although fewer than the maximum are running; empty otherwise."""
    notices: Sequence[str] = ()
    """Messages about repeated episodes, oldest first; the log has the complete reasons."""
    recorded_earlier_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that an interrupted run of the campaign recorded, by id of the recording."""


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
    changes and end. `handle_result` gets each final result and returns further episodes to run. `repairs` are tried in
    order until one succeeds; episodes with repairs are not written.

    Raises PlatformError if the executor disappeared; finished episodes are kept.
    """
    queue = EpisodeQueue(plans, repairs)
    results: list[EpisodeResult] = []
    running: dict[str, StartedEpisode] = {}
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


def _start_episodes(queue: EpisodeQueue, executor: Executor, running: dict[str, StartedEpisode]) -> str:
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


class LocalExecutor:
    """Runs episodes on this machine, with one thread for each.

    Episodes inherit `lock`; see `CampaignHost.open_executor`. `remove_lost` undoes the changes of an episode whose
    process was killed, and removes its folder.
    """

    def __init__(
        self,
        host: EpisodeHost,
        root: Path,
        settings: Mapping[str, Any],
        *,
        lock: int | None = None,
        remove_lost: Callable[[str], None] = lambda episode: None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.root = root
        self._host, self._settings, self._lock, self._program = host, settings, lock, program
        self._remove_lost = remove_lost
        self._threads = ThreadPoolExecutor(max_workers=host.max_concurrent, thread_name_prefix="episode")
        self._running: dict[Future[EpisodeResult], WaitingEpisode] = {}
        self._stopping = Event()

    @property
    def location(self) -> str:
        return str(self.root)

    def check_slot(self) -> SlotState:
        return self._host.check_slot()

    def start(self, waiting: WaitingEpisode) -> RunningEpisode:
        # an episode ends with the thread that started it, so the campaign's own thread must start it
        episode = self._host.start(waiting, self.root, self._settings, lock=self._lock, program=self._program)
        assert episode is not None
        follow = partial(self._host.follow, episode, self._remove_lost, self._stopping.is_set)
        self._running[self._threads.submit(follow)] = waiting
        return episode

    def wait(self, timeout_s: float) -> list[tuple[WaitingEpisode, EpisodeResult]]:
        if not self._running:
            self._stopping.wait(timeout_s)
        done = wait(self._running, timeout=timeout_s, return_when=FIRST_COMPLETED).done
        return [(self._running.pop(future), future.result()) for future in done]

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self.stop()
        self._threads.shutdown(wait=True)


class ThisMachine:
    """Runs a campaign's episodes on this machine, at most `jobs` at a time; by default, as many as it can."""

    def __init__(self, local_host: PlatformHost, root: Path, plans: Sequence[Plan], jobs: int | None = None) -> None:
        self.local_host = local_host
        self._root, self._plans, self._jobs = root, plans, jobs

    def check(self) -> list[str]:
        # the loop itself must import fast
        from faultset.collector.plans.planned_app import check_planned_stores

        return [*self.local_host.check(), *check_planned_stores(self.local_host, self._plans)]

    def episode_capacity(self) -> int:
        return self._jobs or self.local_host.episode_capacity()

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        return self.local_host.unsupported_needs(needs)

    def machines(self) -> dict[str, Any]:
        from faultset.collector.campaigns.records import describe_machine

        return {"host": describe_machine()}

    @contextmanager
    def open_executor(self, *, campaign: str, jobs: int, lock: int) -> Iterator[LocalExecutor]:
        executor = LocalExecutor(
            EpisodeHost(jobs),
            self._root,
            self.local_host.settings,
            lock=lock,
            remove_lost=lambda episode: remove_lost_episode(self._root, episode, self.local_host),
        )
        try:
            yield executor
        finally:
            executor.close()
