"""Scheduler of a campaign: runs episodes side by side, each in a process tree of its own."""

from __future__ import annotations

import logging
import os
import selectors
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

from faultset.collector.campaigns.episode_queue import EpisodeQueue, WaitingEpisode
from faultset.collector.episodes.host_pressure import CpuPressure
from faultset.collector.episodes.messages import (
    EpisodeAssignment,
    EpisodeOutcome,
    LogReport,
    PhaseReport,
    read_message,
    write_message,
)
from faultset.collector.ipc.helper_processes import is_stopped
from faultset.collector.plans.plan import Plan
from faultset.core.errors import FaultsetError

STAGGER_S = 2.0
ORPHANS_END_S = 10.0
"""How long at most the processes of an episode that was killed take to end."""

_log = logging.getLogger(__name__)


@dataclass
class RunningEpisode:
    """One episode under way."""

    waiting: WaitingEpisode
    process: subprocess.Popen[str]
    errors: IO[str]
    phase: str = "new"
    phase_end_ns: int | None = None
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


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """How a planned episode ended in this run of the campaign.

    Attributes
    ----------
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


@dataclass(frozen=True, kw_only=True)
class CampaignProgress:
    """State of a campaign under way.

    Attributes
    ----------
    held_back
        Why no further episode begins although some wait and more might run at a time; empty when there is no reason.
    notices
        Sentences on episodes that are repeated, oldest first.
    """

    running: Mapping[str, RunningEpisode]
    finished: Sequence[EpisodeResult]
    waiting: int
    held_back: str = ""
    notices: Sequence[str] = ()


def run_episodes(
    plans: Sequence[Plan],
    root: Path,
    *,
    jobs: int,
    settings: Mapping[str, Any],
    progress: Callable[[CampaignProgress], None],
    should_stop: Callable[[], bool],
    remove_lost: Callable[[str], None] = lambda episode: None,
    lock: int | None = None,
) -> list[EpisodeResult]:
    """Run plans, at most `jobs` at a time, and return their results in the order in which they ended.

    Fewer run at a time while the machine is short of CPU. An episode that fails is run once more, unless its failure is
    certain to repeat; one that the host has spoiled is run again several times, after the others. When `should_stop`
    returns True, no more are begun, and those under way undo their changes and end.

    Parameters
    ----------
    root
        The dataset's folder.
    settings
        Settings of the platform's host, which each process opens anew.
    progress
        Called several times a second.
    remove_lost
        Called with the id of an episode whose process ended without a word, to undo and remove what it has left.
    lock
        Descriptor of the dataset's lock, which episodes hold until they have undone their changes, should this process
        be killed.
    """
    results: list[EpisodeResult] = []
    waiting, pressure = EpisodeQueue(plans, jobs), CpuPressure()
    held_back = ""
    running: dict[str, RunningEpisode] = {}
    selector = selectors.DefaultSelector()
    last_start, is_stopping = 0.0, False

    def report() -> None:
        progress(
            CampaignProgress(
                running=running,
                finished=results,
                waiting=len(waiting),
                held_back=held_back,
                notices=waiting.notices,
            )
        )

    report()
    try:
        while running or (waiting and not should_stop()):
            if should_stop() and not is_stopping:
                is_stopping = True
                for episode in running.values():
                    episode.process.terminate()
            reason = waiting.reason_to_wait(len(running), pressure.use(window_s=5.0)) if waiting else ""
            held_back = reason if len(running) < jobs else ""
            may_start = not should_stop() and time.monotonic() - last_start >= (STAGGER_S if running else 0.0)
            if waiting and not reason and may_start:
                begun = _start(waiting.next(), root, jobs, settings, lock)
                plan = begun.plan
                running[plan.episode] = begun
                _log.info("episode %s starts (%s, attempt %d)", plan.episode, plan.title, begun.attempt)
                selector.register(_output(begun), selectors.EVENT_READ, plan.episode)
                last_start = time.monotonic()
            for episode in running.values():
                _end_if_stopped(episode)
                _end_orphans(episode.process)
            for key, _ in selector.select(timeout=0.25):
                episode = running[key.data]
                line = _output(episode).readline()
                if line:
                    _receive(episode, line)
                    continue
                selector.unregister(key.fileobj)
                del running[key.data]
                result = _finish(episode, remove_lost)
                if should_stop() or not waiting.repeat(episode.waiting, result.outcome):
                    results.append(result)
            report()
    finally:
        for episode in running.values():
            episode.process.terminate()
        for episode in running.values():
            episode.process.wait()
        selector.close()
    return results


def _start(
    waiting: WaitingEpisode, root: Path, jobs: int, settings: Mapping[str, Any], lock: int | None
) -> RunningEpisode:
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by _finish)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, "-m", "faultset.collector.episodes.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
    )
    assignment = EpisodeAssignment(
        plan=waiting.plan, root=root, parent=os.getpid(), parallel=jobs, settings=dict(settings)
    )
    assert process.stdin is not None
    process.stdin.write(write_message(assignment))
    process.stdin.flush()
    return RunningEpisode(waiting=waiting, process=process, errors=errors)


def _output(episode: RunningEpisode) -> Any:
    return episode.process.stdout


def _receive(episode: RunningEpisode, line: str) -> None:
    message = read_message(line)
    match message:
        case PhaseReport():
            episode.phase, episode.phase_end_ns = message.phase, message.end_ns
        case LogReport():
            _log.log(message.level, "episode %s: %s", episode.plan.episode, message.text)
        case EpisodeOutcome():
            episode.outcome = message


def _end_if_stopped(episode: RunningEpisode) -> None:
    """End an episode whose process was stopped by a signal: its clock runs on, and nothing measures in time."""
    if episode.outcome is None and is_stopped(episode.process.pid):
        failure = "the episode's process was stopped by a signal, which spoils what it measures; let it run"
        episode.outcome = EpisodeOutcome(episode=episode.plan.episode, failure=failure, spoiled_by_host=True)
        episode.process.kill()


def _finish(episode: RunningEpisode, remove_lost: Callable[[str], None]) -> EpisodeResult:
    _await_end(episode.process)
    for stream in (episode.process.stdin, episode.process.stdout):
        if stream:
            stream.close()
    episode.errors.seek(0)
    errors = episode.errors.read()
    episode.errors.close()
    outcome = episode.outcome
    if outcome is None:
        last = (errors.strip().splitlines() or [_exit_of(episode.process.returncode)])[-1]
        outcome = EpisodeOutcome(episode=episode.plan.episode, failure=f"the episode's process ended: {last}")
    if episode.process.returncode < 0:
        try:
            remove_lost(episode.plan.episode)
        except FaultsetError as error:
            failure = f"{outcome.failure}; not all is undone ({error}): run 'faultset recover' on the dataset"
            outcome = replace(outcome, failure=failure, retriable=False, exit_code=error.exit_code)
    return EpisodeResult(
        plan=episode.plan, outcome=outcome, attempts=episode.attempt, wall_s=time.monotonic() - episode.started
    )


def _end_orphans(process: subprocess.Popen[str]) -> bool:
    """Kill what an episode's process has started once it was killed itself; say whether it was."""
    if process.returncode is not None:
        return process.returncode < 0
    # until it is waited for, nobody else gets its number, so that the group is the episode's for sure
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    was_killed = ended is not None and ended.si_code != os.CLD_EXITED
    if was_killed:
        os.killpg(process.pid, signal.SIGKILL)
    return was_killed


def _await_end(process: subprocess.Popen[str]) -> None:
    """Wait for the end of an episode's process, and of those that it has started if it was killed."""
    if process.returncode is None:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if _end_orphans(process):
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
