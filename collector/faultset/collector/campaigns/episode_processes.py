"""One episode under way in a process tree of its own: started, listened to, ended."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import psutil

from faultset.collector.campaigns.episode_queue import EpisodePhase, WaitingEpisode
from faultset.collector.episodes.messages import (
    EpisodeAssignment,
    EpisodeOutcome,
    LogReport,
    PhaseReport,
    read_message,
    write_message,
)
from faultset.collector.ipc.processes import is_stopped
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan
from faultset.core.errors import FaultsetError
from faultset.core.processes import import_path, python_command

PROGRAM = ("-m", "faultset.collector.episodes.process")
"""What the process of an episode runs, as arguments of the interpreter."""
ORPHANS_END_S = 10.0
"""How long at most the processes of an episode that was killed take to end."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """How a planned episode ended in this run of the campaign.

    Attributes
    ----------
    plan
        What was to be run.
    outcome
        What its process reported at the end.
    attempts
        How often it was run; 0 when the dataset had it already.
    wall_s
        Length of the last attempt in seconds.
    """

    plan: Plan
    outcome: EpisodeOutcome
    attempts: int
    wall_s: float

    @property
    def episode(self) -> str:
        """Id of the episode."""
        return self.plan.episode

    @property
    def failure(self) -> str:
        """Why the episode is void; empty when it is in the dataset."""
        return self.outcome.failure

    @property
    def verdict(self) -> str | None:
        """What the tests say of the episode: manifest, latent or silent; None when it is void."""
        return self.outcome.verdict


@dataclass
class RunningEpisode:
    """One episode under way."""

    waiting: WaitingEpisode
    process: subprocess.Popen[str]
    errors: IO[str]
    phase: str = "new"
    phase_end_ns: int | None = None
    phase_began_s: float = field(default_factory=time.monotonic)
    started: float = field(default_factory=time.monotonic)
    outcome: EpisodeOutcome | None = None

    @property
    def plan(self) -> Plan:
        """What is run."""
        return self.waiting.plan

    @property
    def attempt(self) -> int:
        """Which of the episode's runs this is, from 1."""
        return self.waiting.attempt

    @staticmethod
    def start(
        waiting: WaitingEpisode,
        root: Path,
        jobs: int,
        settings: Mapping[str, Any],
        lock: int | None,
        repairs: Sequence[RepairOrder] = (),
        program: Sequence[str] = PROGRAM,
    ) -> RunningEpisode:
        """Start the process of an episode, and tell it what to run; `program` are the interpreter's arguments."""
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by finish)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        if "" in sys.path:
            # A notebook imports from its folder. Services inherit this, so elsewhere it stays as it is.
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
        assignment = EpisodeAssignment(
            plan=waiting.plan,
            root=root,
            parent=os.getpid(),
            parallel=jobs,
            settings=dict(settings),
            repairs=tuple(repairs),
        )
        assert process.stdin is not None
        process.stdin.write(write_message(assignment))
        process.stdin.flush()
        return RunningEpisode(waiting=waiting, process=process, errors=errors)

    @property
    def current_phase(self) -> EpisodePhase:
        """The phase that it was last known to be in, and since when."""
        return EpisodePhase(self.phase, self.phase_began_s)

    @property
    def output(self) -> IO[str]:
        """What the process reports, message by message."""
        assert self.process.stdout is not None
        return self.process.stdout

    def receive(self, line: str) -> None:
        """Take in a message."""
        message = read_message(line)
        match message:
            case PhaseReport():
                self.phase, self.phase_end_ns = message.phase, message.end_ns
                self.phase_began_s = time.monotonic()
            case LogReport():
                _log.log(message.level, "episode %s: %s", self.plan.episode, message.text)
            case EpisodeOutcome():
                self.outcome = message

    def end_if_stopped(self) -> None:
        """End an episode whose process was stopped by a signal: its clock runs on, and nothing measures in time."""
        if self.outcome is None and is_stopped(self.process.pid):
            failure = "the episode's process was stopped by a signal, which spoils what it measures; let it run"
            self.outcome = EpisodeOutcome(episode=self.plan.episode, failure=failure, spoiled_by_host=True)
            self.process.kill()

    def finish(self, remove_lost: Callable[[str], None]) -> EpisodeResult:
        """Wait for the end of the process and return what came of the episode; see `run_episodes`."""
        self._await_end()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
        self.errors.seek(0)
        errors = self.errors.read()
        self.errors.close()
        outcome = self.outcome
        if outcome is None:
            last = (errors.strip().splitlines() or [_exit_of(self.process.returncode)])[-1]
            outcome = EpisodeOutcome(episode=self.plan.episode, failure=f"the episode's process ended: {last}")
        if self.process.returncode < 0:
            try:
                remove_lost(self.plan.episode)
            except FaultsetError as error:
                failure = f"{outcome.failure}; not all is undone ({error}): run 'faultset recover' on the dataset"
                outcome = replace(outcome, failure=failure, retriable=False, exit_code=error.exit_code)
        return EpisodeResult(
            plan=self.plan, outcome=outcome, attempts=self.attempt, wall_s=time.monotonic() - self.started
        )

    def end_orphans(self) -> bool:
        """Kill what the process has started once it was killed itself; say whether it was."""
        process = self.process
        if process.returncode is not None:
            return process.returncode < 0
        # until it is waited for, nobody else gets its number, so that the group is the episode's for sure
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        was_killed = ended is not None and ended.si_code != os.CLD_EXITED
        if was_killed:
            os.killpg(process.pid, signal.SIGKILL)
        return was_killed

    def _await_end(self) -> None:
        """Wait for the end of the process, and of those that it has started if it was killed."""
        process = self.process
        if process.returncode is None:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if self.end_orphans():
            deadline = time.monotonic() + ORPHANS_END_S
            while _has_others(process.pid) and time.monotonic() < deadline:
                time.sleep(0.05)
        process.wait()


def _has_others(session: int) -> bool:
    for pid in psutil.pids():
        try:
            if pid != session and os.getsid(pid) == session:
                return True
        except ProcessLookupError:
            continue
    return False


def _exit_of(code: int) -> str:
    """Say how a process ended.

    >>> _exit_of(-9), _exit_of(3)
    ('killed by SIGKILL', 'exit code 3')
    """
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
