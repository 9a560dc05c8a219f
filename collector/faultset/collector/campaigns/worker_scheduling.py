"""Episodes of a campaign on the workers of a dask scheduler: which begins where, and what becomes of what is lost."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faultset.collector.campaigns.destinations import Destination
from faultset.collector.campaigns.episode_processes import PROGRAM, EpisodeResult
from faultset.collector.campaigns.episode_queue import EpisodeQueue, WaitingEpisode
from faultset.collector.campaigns.scheduler import CampaignProgress
from faultset.collector.campaigns.worker_episodes import (
    RESOURCE,
    TOPIC,
    EpisodeRun,
    WorkerAssignment,
    run_on_dask,
    stop_here,
)
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.plan import Plan
from faultset.core.dask_clients import lost_errors
from faultset.core.errors import PlatformError, in_one_sentence

if TYPE_CHECKING:
    from distributed import Client, Future

_LOOK_EVERY_S = 0.25
_COUNT_EVERY_S = 2.0


@dataclass
class SubmittedEpisode:
    """An episode that a worker runs, as far as the campaign knows."""

    waiting: WaitingEpisode
    worker: str
    phase: str = "ordered"
    started: float = field(default_factory=time.monotonic)

    @property
    def plan(self) -> Plan:
        """What is run."""
        return self.waiting.plan


def free_worker(slots: Mapping[str, int], busy: Mapping[str, int]) -> str | None:
    """Return the worker on which the next episode begins: that with the most free slots; None when there is none.

    Examples
    --------
    >>> free_worker({"a": 2, "b": 2}, {"a": 1}), free_worker({"a": 1}, {"a": 1})
    ('b', None)
    """
    free = {worker: number - busy.get(worker, 0) for worker, number in sorted(slots.items())}
    best = max(free, key=free.__getitem__, default=None)
    return best if best is not None and free[best] > 0 else None


def worker_slots(client: Client) -> dict[str, int]:
    """Return how many episodes each worker of a scheduler runs at a time, by its address."""
    found: Any = client.run_on_scheduler(_slots)
    return found


def _slots(dask_scheduler: Any) -> dict[str, int]:
    return {worker: int(number) for worker, number in dask_scheduler.resources.get(RESOURCE, {}).items()}


def run_on_workers(
    plans: Sequence[Plan],
    destination: Destination,
    *,
    client: Client,
    campaign: str,
    jobs: int | None = None,
    settings: Mapping[str, Any],
    progress: Callable[[CampaignProgress], None],
    should_stop: Callable[[], bool],
    program: Sequence[str] = PROGRAM,
    task: Callable[[WorkerAssignment], EpisodeRun] = run_on_dask,
) -> list[EpisodeResult]:
    """Run plans on the workers of a scheduler and return their results in the order in which they ended.

    What fails is repeated by the rules of `faultset.collector.campaigns.scheduler.run_episodes`. An episode whose
    worker is lost begins again on another one. When `should_stop` returns True, no more are begun, and those under way
    undo their changes and end.

    Parameters
    ----------
    jobs
        How many run at a time at most, on all workers together; as many as they can when left out.
    program
        What runs an episode, as arguments of the interpreter.
    task
        What is done on a worker.

    Raises
    ------
    PlatformError
        The scheduler is gone; what is in the dataset stays.
    """
    campaign_run = _WorkerCampaign(plans, destination, client, campaign, settings, program, task)
    try:
        return campaign_run.run(jobs, progress, should_stop)
    except lost_errors() as error:
        done = sum(not result.failure for result in campaign_run.results)
        raise PlatformError(
            f"the dask scheduler is gone; {done} of {len(plans)} episodes that were to be run are in "
            f"{destination.location}, run the same command again to go on"
        ) from error
    finally:
        campaign_run.close()


class _WorkerCampaign:
    def __init__(
        self,
        plans: Sequence[Plan],
        destination: Destination,
        client: Client,
        campaign: str,
        settings: Mapping[str, Any],
        program: Sequence[str],
        task: Callable[[WorkerAssignment], EpisodeRun],
    ) -> None:
        self.results: list[EpisodeResult] = []
        self._queue = EpisodeQueue(plans)
        self._client, self._task = client, task
        self._order = {
            "destination": destination.for_workers(),
            "campaign": campaign,
            "settings": dict(settings),
            "program": program,
        }
        self._run = secrets.token_hex(8)
        self._under_way: dict[Future, SubmittedEpisode] = {}
        self._slots: dict[str, int] = {}
        self._counted = float("-inf")
        self._ended = threading.Event()
        client.subscribe_topic(TOPIC, self._take_event)

    def run(
        self, jobs: int | None, progress: Callable[[CampaignProgress], None], should_stop: Callable[[], bool]
    ) -> list[EpisodeResult]:
        is_stopping = False
        self._count_slots()
        progress(self._state())
        while self._under_way or (self._queue and not should_stop()):
            if should_stop() and not is_stopping:
                is_stopping = True
                self._client.run(stop_here, self._run)
            self._count_slots()
            while self._queue and not should_stop() and (jobs is None or len(self._under_way) < jobs):
                worker = free_worker(self._slots, Counter(one.worker for one in self._under_way.values()))
                if worker is None:
                    break
                self._begin(worker)
            progress(self._state())
            self._ended.wait(_LOOK_EVERY_S)
            self._ended.clear()
            for future in [future for future in self._under_way if future.done()]:
                self._end(future, self._under_way.pop(future), should_stop())
            progress(self._state())
        return self.results

    def close(self) -> None:
        """Let go of the scheduler, and of what still runs."""
        with contextlib.suppress(Exception):
            self._client.unsubscribe_topic(TOPIC)
            if self._under_way:
                self._client.run(stop_here, self._run)
                self._client.cancel(list(self._under_way))

    def _count_slots(self) -> None:
        if time.monotonic() - self._counted >= _COUNT_EVERY_S:
            self._slots, self._counted = worker_slots(self._client), time.monotonic()

    def _begin(self, worker: str) -> None:
        waiting = self._queue.next()
        future = self._client.submit(
            self._task,
            WorkerAssignment(waiting=waiting, run=self._run, **self._order),
            key=f"episode-{waiting.plan.episode}-{waiting.attempt}-{self._run}",
            workers=[worker],
            # a worker that is lost is replaced by any other
            allow_other_workers=True,
            resources={RESOURCE: 1},
            pure=False,
        )
        self._under_way[future] = SubmittedEpisode(waiting=waiting, worker=worker)
        future.add_done_callback(lambda ended: self._ended.set())

    def _end(self, future: Future, episode: SubmittedEpisode, is_stopping: bool) -> None:
        waiting = episode.waiting
        outcome, wall_s = self._outcome(future, waiting.plan.episode)
        future.release()
        result = EpisodeResult(plan=waiting.plan, outcome=outcome, attempts=waiting.attempt, wall_s=wall_s)
        if is_stopping or not self._queue.repeat(waiting, outcome):
            self.results.append(result)

    def _outcome(self, future: Future, episode: str) -> tuple[EpisodeOutcome, float]:
        from distributed import KilledWorker

        try:
            run: EpisodeRun = future.result()
            return run.outcome, run.wall_s
        except KilledWorker as error:
            failure = (
                f"dask workers ended {error.allowed_failures + 1} times while they ran it; look at their logs, and "
                "give them fewer episodes at a time"
            )
        except lost_errors():
            raise
        except Exception as error:
            failure = in_one_sentence(error)
        return EpisodeOutcome(episode=episode, failure=failure, retriable=False), 0.0

    def _take_event(self, event: tuple[float, tuple[str, str, str, str]]) -> None:
        run, name, worker, phase = event[1]
        if run != self._run:
            return
        for episode in list(self._under_way.values()):
            if episode.plan.episode == name:
                episode.worker, episode.phase = worker, phase

    def _state(self) -> CampaignProgress:
        held_back = "" if self._slots else "no dask worker is there that runs episodes"
        return CampaignProgress(
            running={one.plan.episode: one for one in self._under_way.values()},
            finished=self.results,
            waiting=len(self._queue),
            held_back=held_back if self._queue else "",
            notices=self._queue.notices,
        )
