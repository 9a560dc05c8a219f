"""A worker of a campaign: runs single episodes on its machine, as many at a time as the machine can carry.

An order is run in a folder of its own and handed over to the dataset when it is finished; see
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
"""Resource of dask workers: how many episodes a worker runs at a time."""
TOPIC = "faultset-episodes"
"""Topic of dask on which workers say in which phase their episodes are."""
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, kw_only=True)
class WorkerAssignment:
    """One run of an episode, for one worker."""

    waiting: WaitingEpisode
    destination: Destination
    """Where the episode goes."""
    campaign: str
    """Id of the campaign, whose file the dataset has."""
    run: str
    """Id of the command that wants the episode; it can stop all that it wanted."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the platform's host."""
    program: Sequence[str] = PROGRAM
    """What runs the episode, as arguments of the interpreter."""


@dataclass(frozen=True, kw_only=True)
class EpisodeRun:
    """How an order ended."""

    outcome: EpisodeOutcome
    wall_s: float


Report = Callable[[str], None]
"""Told the phase that an episode enters; the first is `waiting`."""


class EpisodeWorker:
    """Runs orders, each in the thread that brings it and in a folder of its own."""

    def __init__(self, host: EpisodeHost) -> None:
        self._host = host
        self._stopped: set[str] = set()

    def stop(self, run: str) -> None:
        """Let the episodes of a command undo their changes and end, and begin no more of them."""
        self._stopped.add(run)

    def run(self, order: WorkerAssignment, report: Report = lambda phase: None) -> EpisodeRun:
        """Run an order to its end; whatever goes wrong is in the outcome."""
        began = time.monotonic()
        try:
            with translate_resource_errors(order.destination.folder):
                outcome = self._outcome(order, report)
        except FaultsetError as error:
            outcome = EpisodeOutcome(
                episode=order.waiting.plan.episode,
                failure=str(error),
                retriable=not isinstance(error, DataError),
                exit_code=error.exit_code,
            )
        return EpisodeRun(outcome=outcome, wall_s=time.monotonic() - began)

    def _outcome(self, order: WorkerAssignment, report: Report) -> EpisodeOutcome:
        destination, episode = order.destination, order.waiting.plan.episode
        root = destination.folder
        if not destination.has_campaign(order.campaign):
            raise DataError(
                f"the worker does not see {destination.location}, or not what is in it; put it on storage that all "
                "share, or behind a URL"
            )
        if there := destination.outcome(episode):
            return there
        platform = order.waiting.plan.platform
        # what cannot be undone now stays and is tried again; it must not spoil this episode
        with suppress(FaultsetError, OSError):
            remove_abandoned_runs(
                root, lambda name: open_host(name, order.settings) if name == platform else None, RemovalResult()
            )
        folder = WorkerFolder.make(root, episode)
        try:
            outcome = self._run_in(folder, order, report)
            if outcome.failure or outcome.interrupted:
                place = "" if destination.is_shared or not outcome.logs else f" (on the machine {node()})"
                return replace(outcome, failure=outcome.failure + place, logs=folder.keep_logs(root, outcome.logs))
            is_new = destination.hand_over(folder, episode)
            return outcome if is_new else destination.outcome(episode) or outcome
        finally:
            folder.remove()

    def _run_in(self, folder: WorkerFolder, order: WorkerAssignment, report: Report) -> EpisodeOutcome:
        plan = order.waiting.plan
        host = open_host(plan.platform, order.settings)
        report("waiting")
        while order.run not in self._stopped:
            episode = self._host.start(order.waiting, folder.path, order.settings, program=order.program)
            if episode is not None:
                return self._host.follow(
                    episode,
                    lambda name: remove_lost_episode(folder.path, name, host),
                    lambda: order.run in self._stopped,
                    report,
                ).outcome
            time.sleep(_LOOK_EVERY_S)
        return EpisodeOutcome(episode=plan.episode, failure="stopped before it began", interrupted=True)


_worker: EpisodeWorker | None = None
_making = threading.Lock()


def this_worker(most: int = 1) -> EpisodeWorker:
    """Return the worker that this process is, made with `most` the first time."""
    global _worker
    with _making:
        if _worker is None:
            _worker = EpisodeWorker(EpisodeHost(most))
        return _worker


def run_on_dask(order: WorkerAssignment) -> EpisodeRun:
    """Run an order as a task of dask: the worker's resource, not its threads, says how many run at a time."""
    from distributed import get_worker, secede

    worker = get_worker()
    here = this_worker(int(worker.state.total_resources.get(RESOURCE, 1)))
    # the thread is given back, the resource is kept until the end
    secede()
    key = (order.run, order.waiting.plan.episode)
    return here.run(order, lambda phase: worker.log_event(TOPIC, (*key, worker.address, phase)))


def stop_here(run: str) -> None:
    """Stop what this process runs for a command."""
    this_worker().stop(run)
