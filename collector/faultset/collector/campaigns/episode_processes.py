"""Episodes as process trees of this machine: start, follow and end them."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import psutil

from faultset.collector.campaigns.episode_queue import (
    EpisodePhase,
    HostLimit,
    HostState,
    SlotState,
    StartedEpisode,
    VoidAttempt,
    WaitingEpisode,
)
from faultset.collector.episodes.host_pressure import CpuPressure, CpuUse
from faultset.collector.episodes.messages import (
    EpisodeAssignment,
    EpisodeOutcome,
    LogReport,
    PhaseReport,
    decode_message,
    encode_message,
)
from faultset.collector.ipc.launcher import is_stopped
from faultset.collector.plans.plan import Plan
from faultset.core.errors import FaultsetError
from faultset.core.processes import import_path, python_command

PROGRAM = ("-m", "faultset.collector.ipc.launcher", "faultset.collector.episodes.process:main")
"""Interpreter arguments that run an episode."""
RECORDING_PROGRAM = ("-m", "faultset.collector.ipc.launcher", "faultset.collector.recordings.runner:run")
"""Interpreter arguments that run a segment of a recording."""
MAX_ORPHAN_WAIT_S = 10.0
"""Longest wait for the processes of a killed episode."""
STAGGER_S = 2.0
"""Seconds between the starts of two episodes."""
_CHECK_INTERVAL_S = 0.25

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """Result of a planned episode in this run of the campaign."""

    plan: Plan
    """Plan of the episode."""
    outcome: EpisodeOutcome
    """Last report of its process."""
    attempts: int
    """Number of runs; 0 if the dataset already had the episode."""
    wall_s: float
    """Length of the last attempt in seconds."""
    voids: tuple[VoidAttempt, ...] = ()
    """Failed attempts, including the last attempt of a failed episode."""

    @property
    def episode(self) -> str:
        return self.plan.episode

    @property
    def failure(self) -> str:
        """Why the episode is void; empty when it is in the dataset."""
        return self.outcome.failure

    @property
    def verdict(self) -> str | None:
        """Verdict, such as manifest, latent or silent; None for a void episode or a recording."""
        return self.outcome.verdict


@dataclass(kw_only=True)
class RunningEpisode(StartedEpisode):
    """A running episode and its process."""

    process: subprocess.Popen[str]
    errors: IO[str]
    cores: tuple[int, ...] = ()
    phase_began_s: float = field(default_factory=time.monotonic)
    outcome: EpisodeOutcome | None = None

    @staticmethod
    def start(
        waiting: WaitingEpisode,
        root: Path,
        jobs: int,
        settings: Mapping[str, Any],
        lock: int | None = None,
        program: Sequence[str] = PROGRAM,
        cores: tuple[int, ...] = (),
    ) -> RunningEpisode:
        """Start the process of an episode on the given cores; `program` are the interpreter's arguments."""
        if waiting.plan.recording is not None and program == PROGRAM:
            program = RECORDING_PROGRAM
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by finish)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        if "" in sys.path:
            # a notebook imports from its folder; only notebooks set this, because services inherit the variable
            environment["PYTHONPATH"] = import_path()
        process = subprocess.Popen(
            python_command(*program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )
        if cores:
            # services inherit the affinity, so that they do not slow episodes on other cores
            os.sched_setaffinity(process.pid, cores)
        assignment = EpisodeAssignment(
            plan=waiting.plan,
            root=root,
            parent=os.getpid(),
            parallel=jobs,
            settings=dict(settings),
            repairs=waiting.repairs,
        )
        assert process.stdin is not None
        process.stdin.write(encode_message(assignment))
        process.stdin.flush()
        return RunningEpisode(waiting=waiting, process=process, errors=errors, cores=cores)

    @property
    def current_phase(self) -> EpisodePhase:
        """The phase that the process reported last, and its start."""
        return EpisodePhase(self.phase, self.phase_began_s)

    @property
    def output(self) -> IO[str]:
        """Messages of the process, one per line."""
        assert self.process.stdout is not None
        return self.process.stdout

    def receive(self, line: str) -> None:
        message = decode_message(line)
        match message:
            case PhaseReport():
                self.phase = message.phase
                self.phase_began_s = time.monotonic()
            case LogReport():
                _log.log(message.level, "episode %s: %s", self.plan.episode, message.text)
            case EpisodeOutcome():
                self.outcome = message

    def end_if_stopped(self) -> None:
        """Kill an episode whose process was suspended by a signal, because its measurements have a gap."""
        if self.outcome is None and is_stopped(self.process.pid):
            failure = "the episode's process was stopped by a signal, so its data is invalid. Do not suspend it"
            self.outcome = EpisodeOutcome(episode=self.plan.episode, failure=failure, disturbed_by_host=True)
            self.process.kill()

    def finish(self, remove_lost: Callable[[str], None]) -> EpisodeResult:
        """Wait until the process has ended and return the result; `remove_lost` cleans up after a killed process."""
        self._await_end()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
        self.errors.seek(0)
        errors = self.errors.read()
        self.errors.close()
        outcome = self.outcome
        if outcome is None:
            reason = (errors.strip().splitlines() or [_describe_exit(self.process.returncode)])[-1]
            outcome = EpisodeOutcome(episode=self.plan.episode, failure=f"the episode's process ended: {reason}")
        if self.process.returncode < 0:
            try:
                remove_lost(self.plan.episode)
            except FaultsetError as error:
                failure = (
                    f"{outcome.failure}; not all changes are undone ({error}): run 'faultset recover' on the dataset"
                )
                outcome = replace(
                    outcome, failure=failure, retriable=False, needs_recovery=True, exit_code=error.exit_code
                )
        return EpisodeResult(
            plan=self.plan, outcome=outcome, attempts=self.waiting.attempt, wall_s=time.monotonic() - self.started
        )

    def end_orphans(self) -> bool:
        """Kill the children of a process that was itself killed; return whether it was killed."""
        process = self.process
        if process.returncode is not None:
            return process.returncode < 0
        # the kernel does not reuse the process id before the wait, so the group still belongs to the episode
        exit_info = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        was_killed = exit_info is not None and exit_info.si_code != os.CLD_EXITED
        if was_killed:
            os.killpg(process.pid, signal.SIGKILL)
        return was_killed

    def _await_end(self) -> None:
        """Wait until the process has ended; if it was killed, also its children."""
        process = self.process
        if process.returncode is None:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if self.end_orphans():
            deadline = time.monotonic() + MAX_ORPHAN_WAIT_S
            while _has_others(process.pid) and time.monotonic() < deadline:
                time.sleep(0.05)
        process.wait()


def split_cores(episodes: int) -> list[tuple[int, ...]]:
    """Divide this process's cores into one group per episode, or one group per core if there are more episodes."""
    cores = sorted(os.sched_getaffinity(0))
    count = max(1, min(episodes, len(cores)))
    return [tuple(cores[first::count]) for first in range(count)]


class EpisodeHost:
    """Runs episodes on this machine while a slot is free; threads may share it.

    Each episode is pinned to a group of cores, so that episodes on different groups do not slow each other. `use`
    returns the CPU use of this machine over a number of seconds; measured by default.
    """

    def __init__(
        self, max_concurrent: int, *, use: Callable[[float], CpuUse | None] | None = None, stagger_s: float = STAGGER_S
    ) -> None:
        self.max_concurrent, self._stagger_s = max_concurrent, stagger_s
        self._limit = HostLimit(max_concurrent)
        self._core_groups = split_cores(max_concurrent)
        self._use = use or CpuPressure().use
        self._running: dict[int, RunningEpisode] = {}
        self._last_start = 0.0
        self._lock = threading.RLock()

    def check_slot(self) -> SlotState:
        with self._lock:
            now_s = time.monotonic()
            state = HostState.measure([episode.current_phase for episode in self._running.values()], self._use, now_s)
            reason = self._limit.reason_to_wait(state)
            has_paused = not self._running or now_s - self._last_start >= self._stagger_s
            # before the first measurement, waiting is normal and not reported
            is_reported = state.running < self.max_concurrent and state.use is not None
            return SlotState(
                is_free=has_paused and not reason, wait_reason=reason if is_reported else "", use=state.use
            )

    def start(
        self,
        waiting: WaitingEpisode,
        root: Path,
        settings: Mapping[str, Any],
        *,
        lock: int | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> RunningEpisode | None:
        """Start an episode, for which the caller must call `follow`; return None if no slot is free."""
        with self._lock:
            if not self.check_slot().is_free:
                return None
            cores = min(
                self._core_groups, key=lambda group: sum(episode.cores == group for episode in self._running.values())
            )
            episode = RunningEpisode.start(waiting, root, self.max_concurrent, settings, lock, program, cores)
            self._running[id(episode)] = episode
            self._last_start = time.monotonic()
            return episode

    def follow(
        self,
        episode: RunningEpisode,
        remove_lost: Callable[[str], None],
        is_stopped: Callable[[], bool],
        report: Callable[[str], None] = lambda phase: None,
    ) -> EpisodeResult:
        """Read the messages of a started episode until it ends, and return its result.

        If its process was killed, `remove_lost` undoes its changes and removes its folder. Once `is_stopped` returns
        True, the episode undoes its changes and ends. `report` is called with each phase.
        """
        try:
            self._listen(episode, is_stopped, report)
            result = episode.finish(remove_lost)
        except BaseException:
            episode.process.terminate()
            raise
        finally:
            with self._lock:
                del self._running[id(episode)]
        with self._lock:
            self._limit.adapt(result.outcome, episode.started)
        return result

    def _listen(self, episode: RunningEpisode, is_stopped: Callable[[], bool], report: Callable[[str], None]) -> None:
        phase, is_stopping = "", False
        with selectors.DefaultSelector() as selector:
            selector.register(episode.output, selectors.EVENT_READ)
            while True:
                if is_stopped() and not is_stopping:
                    is_stopping = True
                    episode.process.terminate()
                episode.end_if_stopped()
                episode.end_orphans()
                if not selector.select(timeout=_CHECK_INTERVAL_S):
                    continue
                line = episode.output.readline()
                if not line:
                    return
                episode.receive(line)
                if episode.phase != phase:
                    phase = episode.phase
                    report(phase)


def _has_others(session: int) -> bool:
    for pid in psutil.pids():
        try:
            if pid != session and os.getsid(pid) == session:
                return True
        except ProcessLookupError:
            continue
    return False


def _describe_exit(code: int) -> str:
    """Describe how a process ended.

    >>> _describe_exit(-9), _describe_exit(3)
    ('killed by SIGKILL', 'exit code 3')
    """
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
