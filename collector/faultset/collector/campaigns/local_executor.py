"""Run the episodes of a campaign as processes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from faultset.collector.campaigns.episode_processes import PROGRAM, EpisodeHost, EpisodeResult, RunningEpisode
from faultset.collector.campaigns.episode_queue import SlotState, WaitingEpisode
from faultset.collector.campaigns.output_folder import remove_lost_episode
from faultset.collector.campaigns.provenance import describe_machine
from faultset.collector.plans.chosen_stores import check_planned_stores
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.hosts import PlatformHost


class LocalExecutor:
    """Runs episodes on this machine, with one thread for each.

    Parameters
    ----------
    host
        Limits the number of concurrent episodes.
    root
        Target folder.
    settings
        Settings of the platform's host, which every process opens for itself.
    lock
        Descriptor of the folder's lock, which episodes inherit; see `CampaignHost.open_executor`.
    remove_lost
        Called with the id of an episode whose process was killed; undoes its changes and removes its folder.
    program
        Interpreter arguments that run an episode.
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
        """Path of the target folder."""
        return str(self.root)

    def check_slot(self) -> SlotState:
        """Return whether one more episode may start now."""
        return self._host.check_slot()

    def start(self, waiting: WaitingEpisode) -> RunningEpisode:
        """Start an episode; a slot must be free."""
        # an episode ends with the thread that started it, so the campaign's own thread must start it
        episode = self._host.start(waiting, self.root, self._settings, lock=self._lock, program=self._program)
        assert episode is not None
        follow = partial(self._host.follow, episode, self._remove_lost, self._stopping.is_set)
        self._running[self._threads.submit(follow)] = waiting
        return episode

    def wait(self, timeout_s: float) -> list[tuple[WaitingEpisode, EpisodeResult]]:
        """Wait until an episode ends or the timeout expires; return all that ended since the last call."""
        if not self._running:
            self._stopping.wait(timeout_s)
        done = wait(self._running, timeout=timeout_s, return_when=FIRST_COMPLETED).done
        return [(self._running.pop(future), future.result()) for future in done]

    def stop(self) -> None:
        """Make all running episodes undo their changes and end."""
        self._stopping.set()

    def close(self) -> None:
        """Stop all running episodes and wait until they have ended."""
        self.stop()
        self._threads.shutdown(wait=True)


class ThisMachine:
    """Runs a campaign's episodes on this machine.

    Parameters
    ----------
    local_host
        This machine as host of the platform.
    root
        Target folder.
    plans
        Planned episodes; `check` looks for the servers of their stores.
    jobs
        Maximum number of concurrent episodes; by default, the capacity of the machine.
    """

    def __init__(self, local_host: PlatformHost, root: Path, plans: Sequence[Plan], jobs: int | None = None) -> None:
        self.local_host = local_host
        self._root, self._plans, self._jobs = root, plans, jobs

    def check(self) -> list[str]:
        """Return sentences for the user; raise PlatformError if episodes cannot run."""
        return [*self.local_host.check(), *check_planned_stores(self.local_host, self._plans)]

    def episode_capacity(self) -> int:
        """Return the maximum number of concurrent episodes."""
        return self._jobs or self.local_host.episode_capacity()

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return the missing capabilities among `needs`, with the reasons."""
        return self.local_host.unsupported_needs(needs)

    def machines(self) -> dict[str, Any]:
        """Describe this machine for a version's provenance."""
        return {"host": describe_machine()}

    @contextmanager
    def open_executor(self, *, campaign: str, jobs: int, lock: int) -> Iterator[LocalExecutor]:
        """Yield an executor whose episodes inherit the lock; see `CampaignHost`."""
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
