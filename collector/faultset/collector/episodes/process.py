"""The process of one episode: assignment on standard input, phases and outcome on standard output."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from faultset.collector.episodes.actions import EpisodeOptions
from faultset.collector.episodes.messages import (
    EpisodeAssignment,
    EpisodeMessage,
    EpisodeOutcome,
    LogReport,
    PhaseReport,
    encode_message,
)
from faultset.collector.episodes.runner import EpisodeRunner
from faultset.collector.episodes.state_machine import Phase
from faultset.collector.episodes.working_folders import FAILED, MARKER, WorkingFolder
from faultset.collector.ipc.channel import decode
from faultset.collector.plans.planned_app import original_servers, planned_app, store_servers
from faultset.collector.platforms.hosts import open_host
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.recorder import SourceRecorder, load_source
from faultset.core.errors import DataError, FaultsetError, in_one_sentence
from faultset.core.files import translate_resource_errors
from faultset.core.processes import BACKGROUND_NICENESS, die_with_parent, lower_priority, session_nice, set_session_nice

REASON = "reason.txt"
TRACEBACK = "traceback.txt"
MIN_FREE_BYTES = 64 * 2**20
MONITORING_NICENESS = 5
"""Niceness of monitoring processes; gives them a third of the CPU share of services."""


def main(runner_type: type[EpisodeRunner] = EpisodeRunner) -> None:
    """Run the assigned plan; exit with 0 if an outcome was reported."""
    # the start must not slow other episodes
    set_session_nice(BACKGROUND_NICENESS)
    assignment = decode(EpisodeAssignment, sys.stdin.readline())
    send = _open_sender()
    _forward_logs(send)
    die_with_parent(assignment.parent, signal.SIGTERM)
    stop_signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: stop_signals.append(received))
    plan = assignment.plan
    try:
        working_folder = WorkingFolder.claim(assignment.root, plan.episode, plan.platform)
    except (FaultsetError, OSError) as error:
        send(_describe_failed_start(plan.episode, error))
        return
    journal = Journal(working_folder.journal)
    try:
        with translate_resource_errors(working_folder.folder):
            outcome = _run(runner_type, assignment, working_folder, journal, stop_signals, send)
    except FaultsetError as error:
        retriable = not isinstance(error, DataError)
        outcome = EpisodeOutcome(
            episode=plan.episode, failure=str(error), retriable=retriable, exit_code=error.exit_code
        )
    except Exception as error:
        with suppress(OSError):
            (working_folder.folder / TRACEBACK).write_text(traceback.format_exc())
        outcome = EpisodeOutcome(episode=plan.episode, failure=in_one_sentence(error), retriable=False)
    finally:
        journal.close()
    if stop_signals:
        outcome = replace(outcome, interrupted=True)
    if outcome.failure and not outcome.interrupted:
        outcome = replace(outcome, logs=_keep_for_diagnosis(working_folder, assignment.root, outcome.failure))
    send(_release(assignment, working_folder, journal, outcome))


def _prioritise_services() -> None:
    """Run services at normal priority and monitoring at a lower one."""
    this_process = psutil.Process()
    for process in (this_process, *this_process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            is_monitoring = process == this_process or process.name() == "telemetry"
            if session_nice(process.pid):
                set_session_nice(MONITORING_NICENESS if is_monitoring else 0, process.pid)


def _forward_logs(send: Callable[[EpisodeMessage], None]) -> None:
    """Send log records of level INFO and above as messages."""

    class Sender(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            send(LogReport(level=record.levelno, text=record.getMessage()))

    logger = logging.getLogger("faultset")
    logger.addHandler(Sender())
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _run(
    runner_type: type[EpisodeRunner],
    assignment: EpisodeAssignment,
    working_folder: WorkingFolder,
    journal: Journal,
    stop_signals: list[int],
    send: Callable[[EpisodeMessage], None],
) -> EpisodeOutcome:
    plan = assignment.plan
    journal.note("plan", **json.loads(plan.to_json()))
    app = planned_app(plan)
    rates = app.background_errors.model_dump()
    journal.note("background-errors", [str(rate) for rate in rates.values()], **rates)
    # a recording samples whole traces when it writes them
    app = app.model_copy(update={"trace_sampling": plan.trace_sampling if plan.recording is None else 1.0})
    host = open_host(plan.platform, assignment.settings)
    servers = {} if plan.stores is None else store_servers(app, original_servers(host, app))
    platform = host.create_platform(
        app, working_folder.folder, journal, episode=plan.episode, seed=plan.seed, step_s=plan.step_s
    )

    def report(phase: Phase) -> None:
        if phase is Phase.WARMUP:
            _prioritise_services()
        elif phase is Phase.COLLECT:
            # writing files must not slow other episodes
            lower_priority()
        send(PhaseReport(phase=str(phase)))

    sources = SourceRecorder([load_source(name) for name in plan.sources], working_folder.folder / "sources")
    runner = runner_type(
        plan,
        platform,
        journal,
        assignment.root,
        EpisodeOptions(
            sources=sources,
            report=report,
            interrupted=lambda: bool(stop_signals) or os.getppid() != assignment.parent,
            parallel=assignment.parallel,
            repairs=assignment.repairs,
            store_servers=servers,
        ),
    )
    try:
        return runner.run()
    finally:
        sources.close()
        platform.teardown()


def _describe_failed_start(episode: str, error: Exception) -> EpisodeOutcome:
    if isinstance(error, FaultsetError):
        return EpisodeOutcome(episode=episode, failure=str(error), retriable=False, exit_code=error.exit_code)
    failure = (
        f"the episode's working folder cannot be created ({error}). Free disk space, or set TMPDIR to another disk"
    )
    return EpisodeOutcome(episode=episode, failure=failure, retriable=False, exit_code=DataError.exit_code)


def _release(
    assignment: EpisodeAssignment, working_folder: WorkingFolder, journal: Journal, outcome: EpisodeOutcome
) -> EpisodeOutcome:
    """Undo remaining changes and remove the working folder; return the outcome with any failure."""
    try:
        if journal.open_undo_operations():
            plan = assignment.plan
            open_host(plan.platform, assignment.settings).undo_abandoned(working_folder.journal)
        working_folder.release()
    except FaultsetError as error:
        failure = outcome.failure or str(error)
        if not outcome.needs_recovery:
            failure += f"; not all changes are undone ({error}): run 'faultset recover --out {assignment.root}'"
        exit_code = outcome.exit_code or error.exit_code
        return replace(outcome, failure=failure, retriable=False, needs_recovery=True, exit_code=exit_code)
    return outcome


def _open_sender() -> Callable[[EpisodeMessage], None]:
    """Return a function that sends messages; redirect all other output to standard error."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(message: EpisodeMessage) -> None:
        # the campaign may be gone; the episode must still undo its changes
        with suppress(BrokenPipeError):
            output.write(encode_message(message))
            output.flush()

    return send


def _keep_for_diagnosis(working_folder: WorkingFolder, root: Path, failure: str) -> Path | None:
    """Copy the logs, journal and failure of an episode into the dataset; return the folder, or None if that fails."""
    target = root / FAILED / working_folder.note.episode
    shutil.rmtree(target, ignore_errors=True)
    try:
        if shutil.disk_usage(root).free < MIN_FREE_BYTES:
            return None
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(
            working_folder.folder,
            target,
            ignore=lambda folder, names: [n for n in names if not _is_plain(Path(folder) / n)],
        )
        (target / REASON).write_text(f"{failure}\n", encoding="utf-8")
    except (OSError, shutil.Error):
        shutil.rmtree(target, ignore_errors=True)
        return None
    return target


def _is_plain(path: Path) -> bool:
    """Return whether a file may be copied; mounted files hold passwords and data."""
    return (
        path.name not in (MARKER, "mounts", "volumes") and not path.is_symlink() and (path.is_dir() or path.is_file())
    )
