"""Run the episodes of a campaign on dask workers; episodes of lost workers are repeated.

A worker runs each episode in a separate folder and moves it into the dataset once it is finished; see
`faultset.collector.campaigns.output_folder` and `faultset.collector.campaigns.destinations`.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from platform import node
from typing import TYPE_CHECKING, Any

from faultset.collector.campaigns.destinations import Destination
from faultset.collector.campaigns.episode_processes import PROGRAM, EpisodeHost, EpisodeResult
from faultset.collector.campaigns.episode_queue import SlotState, StartedEpisode, WaitingEpisode
from faultset.collector.campaigns.executors import ExecutorLost
from faultset.collector.campaigns.output_folder import (
    RemovalResult,
    WorkerFolder,
    remove_abandoned_runs,
    remove_lost_episode,
)
from faultset.collector.campaigns.records import describe_machine
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.recorded_plans import identify_code
from faultset.collector.platforms.hosts import PlatformHost, open_host
from faultset.core.dask_clients import connect_client, list_connection_errors
from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError, in_one_sentence
from faultset.core.files import translate_resource_errors
from faultset.core.printable import count_text

if TYPE_CHECKING:
    from distributed import Client, Future

RESOURCE = "episode"
"""Resource of dask workers: maximum number of concurrent episodes."""
TOPIC = "faultset-episodes"
"""Dask topic on which workers report the phases of their episodes."""
_POLL_INTERVAL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class WorkerAssignment:
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
_creation_lock = threading.Lock()


def this_worker(max_concurrent: int = 1) -> EpisodeWorker:
    """Return the worker of this process; the first call creates it for `max_concurrent` concurrent episodes."""
    global _worker
    with _creation_lock:
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
    this_worker().stop(run)


_COUNT_EVERY_S = 2.0


@dataclass(kw_only=True)
class SubmittedEpisode(StartedEpisode):
    """An episode on a worker."""

    worker: str
    phase: str = "submitted"


def choose_worker(slots: Mapping[str, int], busy: Mapping[str, int]) -> str | None:
    """Return the worker with the most free slots for the next episode; None when all are busy.

    >>> choose_worker({"a": 2, "b": 2}, {"a": 1}), choose_worker({"a": 1}, {"a": 1})
    ('b', None)
    """
    free = {worker: number - busy.get(worker, 0) for worker, number in sorted(slots.items())}
    best = max(free, key=free.__getitem__, default=None)
    return best if best is not None and free[best] > 0 else None


def count_slots(client: Client) -> dict[str, int]:
    slots: Any = client.run_on_scheduler(_read_slots)
    return slots


def _read_slots(dask_scheduler: Any) -> dict[str, int]:
    return {worker: int(number) for worker, number in dask_scheduler.resources.get(RESOURCE, {}).items()}


class DaskExecutor:
    """Runs episodes on the workers of a dask scheduler, at most `jobs` at a time on all workers together.

    An episode whose worker disappears starts again on another one.
    """

    def __init__(
        self,
        client: Client,
        destination: Destination,
        *,
        campaign: str,
        settings: Mapping[str, Any],
        jobs: int | None = None,
        program: Sequence[str] = PROGRAM,
        task: Callable[[WorkerAssignment], EpisodeRun] = run_on_dask,
    ) -> None:
        self.location = destination.location
        self._client, self._jobs, self._task = client, jobs, task
        self._common_fields = {
            "destination": destination.for_workers(),
            "campaign": campaign,
            "settings": dict(settings),
            "program": program,
        }
        self._run = secrets.token_hex(8)
        self._running: dict[Future, SubmittedEpisode] = {}
        self._slots: dict[str, int] = {}
        self._counted_s = float("-inf")
        self._ended = threading.Event()
        client.subscribe_topic(TOPIC, self._handle_event)

    def check_slot(self) -> SlotState:
        if time.monotonic() - self._counted_s >= _COUNT_EVERY_S:
            with _translate_losses():
                self._slots, self._counted_s = count_slots(self._client), time.monotonic()
        is_allowed = self._jobs is None or len(self._running) < self._jobs
        wait_reason = "" if self._slots else "no dask worker can run episodes"
        return SlotState(is_free=is_allowed and self._free_worker() is not None, wait_reason=wait_reason)

    def start(self, waiting: WaitingEpisode) -> SubmittedEpisode:
        """Submit an episode to the worker with the most free slots."""
        worker = self._free_worker()
        assert worker is not None
        with _translate_losses():
            future = self._client.submit(
                self._task,
                WorkerAssignment(waiting=waiting, run=self._run, **self._common_fields),
                key=f"episode-{waiting.plan.episode}-{waiting.attempt}-{self._run}",
                workers=[worker],
                # any other worker may replace one that disappears
                allow_other_workers=True,
                resources={RESOURCE: 1},
                pure=False,
            )
        self._running[future] = episode = SubmittedEpisode(waiting=waiting, worker=worker)
        future.add_done_callback(lambda ended: self._ended.set())
        return episode

    def wait(self, timeout_s: float) -> list[tuple[WaitingEpisode, EpisodeResult]]:
        self._ended.wait(timeout_s)
        self._ended.clear()
        done = [future for future in self._running if future.done()]
        with _translate_losses():
            return [self._end_episode(future, self._running.pop(future).waiting) for future in done]

    def stop(self) -> None:
        with _translate_losses():
            self._client.run(stop_here, self._run)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.unsubscribe_topic(TOPIC)
            if self._running:
                self._client.run(stop_here, self._run)
                self._client.cancel(list(self._running))

    def _free_worker(self) -> str | None:
        return choose_worker(self._slots, Counter(episode.worker for episode in self._running.values()))

    def _end_episode(self, future: Future, waiting: WaitingEpisode) -> tuple[WaitingEpisode, EpisodeResult]:
        outcome, wall_s = _get_outcome(future, waiting.plan.episode)
        future.release()
        return waiting, EpisodeResult(plan=waiting.plan, outcome=outcome, attempts=waiting.attempt, wall_s=wall_s)

    def _handle_event(self, event: tuple[float, tuple[str, str, str, str]]) -> None:
        run, name, worker, phase = event[1]
        if run != self._run:
            return
        for episode in list(self._running.values()):
            if episode.plan.episode == name:
                episode.worker, episode.phase = worker, phase


def _get_outcome(future: Future, episode: str) -> tuple[EpisodeOutcome, float]:
    from distributed import KilledWorker

    try:
        run: EpisodeRun = future.result()
        return run.outcome, run.wall_s
    except KilledWorker as error:
        failure = (
            f"dask workers ended {error.allowed_failures + 1} times while running this episode. Look at their logs, "
            f"and start them with a smaller --resources {RESOURCE}=N"
        )
    except list_connection_errors():
        raise
    except Exception as error:
        failure = in_one_sentence(error)
    return EpisodeOutcome(episode=episode, failure=failure, retriable=False), 0.0


@contextlib.contextmanager
def _translate_losses() -> Iterator[None]:
    try:
        yield
    except list_connection_errors() as error:
        raise ExecutorLost("the dask scheduler is gone") from error


EMBEDDED = "local"
"""The only platform whose episodes dask workers can run."""


@dataclass(frozen=True, kw_only=True)
class WorkerDescription:
    """A worker's report about its machine."""

    problem: str
    """Why no episode can run there; empty when one can."""
    code: Mapping[str, str]
    """Code that the campaign would run there; see `identify_code`."""
    name: str
    """Name of the machine."""
    machine: Mapping[str, Any]
    """Result of `describe_machine`."""


class WorkerHosts:
    """Runs a campaign's episodes on the workers of a dask scheduler, which use the settings of `local_host`.

    At most `jobs` run at a time on all workers together; by default, the sum of their capacities.
    """

    def __init__(
        self,
        client: Client,
        address: str,
        destination: Destination,
        plans: Sequence[Plan],
        local_host: PlatformHost,
        jobs: int | None,
    ) -> None:
        self.local_host = local_host
        self._client, self._address = client, address
        self._destination = destination.for_workers()
        self._plans, self._settings, self._jobs = plans, dict(local_host.settings), jobs
        self._machines: list[dict[str, Any]] = []

    def check(self) -> list[str]:
        """Check all workers; return sentences for the user, and raise PlatformError if episodes cannot run."""
        slots = count_slots(self._client)
        if not slots:
            raise PlatformError(
                f"dask workers must limit their concurrent episodes, but no worker of {self._address} has a limit. "
                f'Start workers with "dask worker {self._address} --resources {RESOURCE}=2"'
            )
        reports: Any = self._client.run(
            _describe_worker, self._destination, self._plans, self._settings, workers=list(slots)
        )
        code = identify_code(self._plans)
        for worker, report in sorted(reports.items()):
            if report.problem:
                raise PlatformError(f"episodes cannot run on the dask worker {worker}: {report.problem}")
            if report.code != code:
                other = min(name for name in {*report.code, *code} if report.code.get(name) != code.get(name))
                raise PlatformError(
                    f"the code of {other} on the dask worker {worker} differs from the code on this machine. Install "
                    "the same version"
                )
        self._machines = list({report.name: dict(report.machine) for report in reports.values()}.values())
        workers, machines = count_text(len(slots), "dask worker"), count_text(len(self._machines), "machine")
        return [f"{workers} on {machines}, together {count_text(sum(slots.values()), 'episode')} at a time"]

    def episode_capacity(self) -> int:
        slots = max(1, sum(count_slots(self._client).values()))
        return min(slots, self._jobs or slots)

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return the capabilities among `needs` that some worker lacks, with the reasons."""
        reasons: Any = self._client.run(_unsupported_on_worker, EMBEDDED, self._settings, sorted(needs))
        return {need: reason for worker in sorted(reasons) for need, reason in reasons[worker].items()}

    def machines(self) -> dict[str, Any]:
        """See `CampaignHost`; `check` must have been called."""
        return {"hosts": self._machines}

    @contextlib.contextmanager
    def open_executor(self, *, campaign: str, jobs: int, lock: int) -> Iterator[DaskExecutor]:
        """Yield an executor; it also uses workers that join later."""
        executor = DaskExecutor(
            self._client, self._destination, campaign=campaign, settings=self._settings, jobs=self._jobs
        )
        try:
            yield executor
        finally:
            executor.close()


def check_for_workers(platform: str, destination: Destination) -> None:
    """Raise UsageError unless dask workers can run a platform and reach the destination."""
    if platform != EMBEDDED:
        raise UsageError(
            f"--scheduler runs episodes of the platform {EMBEDDED}, but --platform is {platform}. Leave one of them out"
        )
    if destination.location.startswith("memory://"):
        raise UsageError(
            f"workers cannot read {destination.location}, which is in the memory of this process. Choose another --out"
        )


@contextlib.contextmanager
def open_workers(
    address: str, destination: Destination, plans: Sequence[Plan], local_host: PlatformHost, *, jobs: int | None = None
) -> Iterator[WorkerHosts]:
    """Yield the workers of a dask scheduler; all must be able to reach the dataset.

    Raises UsageError if the address is invalid, and PlatformError if the scheduler does not answer.
    """
    folder = str(destination.for_workers().folder) if destination.is_shared else None
    with connect_client(address, folder, _module_for_workers) as client:
        yield WorkerHosts(client, address, destination, plans, local_host, jobs)


def _module_for_workers() -> str:
    return __name__


def _describe_worker(destination: Destination, plans: Sequence[Plan], settings: Mapping[str, Any]) -> WorkerDescription:
    try:
        destination.check()
        open_host(plans[0].platform, settings).check()
        return WorkerDescription(problem="", code=identify_code(plans), name=node(), machine=describe_machine())
    except FaultsetError as error:
        return WorkerDescription(problem=str(error), code={}, name=node(), machine=describe_machine())


def _unsupported_on_worker(platform: str, settings: Mapping[str, Any], needs: Collection[str]) -> dict[str, str]:
    return open_host(platform, settings).unsupported_needs(needs)
