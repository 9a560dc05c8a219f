"""A dask worker of a campaign: runs individual episodes within the capacity of its machine.

Each episode runs in a separate folder and is moved into the dataset once it is finished; see
`faultset.collector.campaigns.output_folder` and `faultset.collector.campaigns.destinations`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from platform import node
from typing import Any

from faultset.collector.campaigns.destinations import Destination
from faultset.collector.campaigns.episode_processes import PROGRAM, EpisodeHost
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.output_folder import (
    RemovalResult,
    WorkerFolder,
    remove_abandoned_runs,
    remove_lost_episode,
)
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.platforms.hosts import open_host
from faultset.core.errors import DataError, FaultsetError
from faultset.core.files import translate_resource_errors

RESOURCE = "episode"
"""Resource of dask workers: maximum number of concurrent episodes."""
TOPIC = "faultset-episodes"
"""Dask topic on which workers report the phases of their episodes."""
_POLL_INTERVAL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class WorkerAssignment:
    """An episode to run on one worker."""

    waiting: WaitingEpisode
    destination: Destination
    """Dataset of the episode."""
    campaign: str
    """Id of the campaign; its file is in the dataset."""
    run: str
    """Id of the `collect` command, which can stop all its episodes at once."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the platform's host."""
    program: Sequence[str] = PROGRAM
    """Interpreter arguments that run the episode."""


@dataclass(frozen=True, kw_only=True)
class EpisodeRun:
    """Outcome and duration of an assignment."""

    outcome: EpisodeOutcome
    wall_s: float


Report = Callable[[str], None]
"""Called with each phase that an episode enters; the first is `waiting`."""


class EpisodeWorker:
    """Runs assignments, each in its caller's thread and in a separate folder."""

    def __init__(self, host: EpisodeHost) -> None:
        self._host = host
        self._stopped: set[str] = set()

    def stop(self, run: str) -> None:
        """Undo and end the episodes of a command, and start no more of them."""
        self._stopped.add(run)

    def run(self, assignment: WorkerAssignment, report: Report = lambda phase: None) -> EpisodeRun:
        """Run an assignment; errors are reported in the outcome."""
        start_s = time.monotonic()
        try:
            with translate_resource_errors(assignment.destination.folder):
                outcome = self._find_or_run(assignment, report)
        except FaultsetError as error:
            outcome = EpisodeOutcome(
                episode=assignment.waiting.plan.episode,
                failure=str(error),
                retriable=not isinstance(error, DataError),
                exit_code=error.exit_code,
            )
        return EpisodeRun(outcome=outcome, wall_s=time.monotonic() - start_s)

    def _find_or_run(self, assignment: WorkerAssignment, report: Report) -> EpisodeOutcome:
        destination, episode = assignment.destination, assignment.waiting.plan.episode
        root = destination.folder
        if not destination.has_campaign(assignment.campaign):
            raise DataError(
                f"the worker must be able to read {destination.location}, but found no file of the campaign there. "
                "Use storage that all machines share, or a URL"
            )
        if outcome := destination.outcome(episode):
            return outcome
        platform = assignment.waiting.plan.platform
        # a later run retries what cannot be undone now; this episode continues
        with suppress(FaultsetError, OSError):
            remove_abandoned_runs(
                root, lambda name: open_host(name, assignment.settings) if name == platform else None, RemovalResult()
            )
        folder = WorkerFolder.make(root, episode)
        try:
            outcome = self._run_in(folder, assignment, report)
            if outcome.failure or outcome.interrupted:
                machine = "" if destination.is_shared or not outcome.logs else f" (on the machine {node()})"
                return replace(outcome, failure=outcome.failure + machine, logs=folder.keep_logs(root, outcome.logs))
            is_new = destination.hand_over(folder, episode)
            return outcome if is_new else destination.outcome(episode) or outcome
        finally:
            folder.remove()

    def _run_in(self, folder: WorkerFolder, assignment: WorkerAssignment, report: Report) -> EpisodeOutcome:
        plan = assignment.waiting.plan
        host = open_host(plan.platform, assignment.settings)
        report("waiting")
        while assignment.run not in self._stopped:
            episode = self._host.start(assignment.waiting, folder.path, assignment.settings, program=assignment.program)
            if episode is not None:
                return self._host.follow(
                    episode,
                    lambda name: remove_lost_episode(folder.path, name, host),
                    lambda: assignment.run in self._stopped,
                    report,
                ).outcome
            time.sleep(_POLL_INTERVAL_S)
        return EpisodeOutcome(episode=plan.episode, failure="stopped before it started", interrupted=True)


_worker: EpisodeWorker | None = None
_creation = threading.Lock()


def this_worker(max_concurrent: int = 1) -> EpisodeWorker:
    """Return the worker of this process; the first call creates it for `max_concurrent` concurrent episodes."""
    global _worker
    with _creation:
        if _worker is None:
            _worker = EpisodeWorker(EpisodeHost(max_concurrent))
        return _worker


def run_on_dask(assignment: WorkerAssignment) -> EpisodeRun:
    """Run an assignment as a dask task; the worker's resource, not its threads, limits the concurrency."""
    from distributed import get_worker, secede

    worker = get_worker()
    episodes = this_worker(int(worker.state.total_resources.get(RESOURCE, 1)))
    # release the thread, but keep the resource until the episode ends
    secede()
    key = (assignment.run, assignment.waiting.plan.episode)
    return episodes.run(assignment, lambda phase: worker.log_event(TOPIC, (*key, worker.address, phase)))


def stop_here(run: str) -> None:
    """Stop all episodes that this process runs for a command."""
    this_worker().stop(run)
