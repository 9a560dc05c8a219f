"""Running the episodes of a campaign side by side, each in a process tree of its own; resuming what was left."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from faultset.collector.episodes.messages import EpisodeAssignment, EpisodeOutcome, PhaseReport, read_message
from faultset.collector.episodes.working_folders import working_folders
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.hosts import PlatformHost
from faultset.core.errors import DataError

CAMPAIGNS = "campaigns"
ATTEMPTS = 2
STAGGER_S = 2.0


@dataclass
class Running:
    """One episode under way."""

    plan: Plan
    process: subprocess.Popen[str]
    attempt: int
    errors: IO[str]
    phase: str = "new"
    phase_end_ns: int | None = None
    started: float = field(default_factory=time.monotonic)
    outcome: EpisodeOutcome | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a planned episode ended in this run of the campaign, or that it was there already."""

    plan: Plan
    outcome: EpisodeOutcome
    wall_s: float
    resumed: bool = False


Watcher = Callable[[Mapping[str, Running], Sequence[Result], int], None]


def write_campaign(
    root: Path, campaign: str, plans: Sequence[Plan], request: Mapping[str, Any], refused: Mapping[str, str]
) -> Path:
    """Write the campaign's plans and seeds, whole or not at all; a campaign that exists stays as it is.

    `refused` holds the faults that were asked for and cannot be made on the platform, with the reason.
    """
    folder = root / CAMPAIGNS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{campaign}.json"
    if not path.exists():
        record = {"campaign": campaign, "request": dict(request), "plans": [json.loads(p.to_json()) for p in plans]}
        part = path.with_suffix(".part")
        record = {**record, "refused": dict(refused), "failures": {}}
        part.write_text(json.dumps(record, indent=1, sort_keys=True))
        part.rename(path)
    return path


def record_failures(path: Path, failures: Mapping[str, str]) -> None:
    """Note in the campaign which episodes came to nothing, and why."""
    record = json.loads(path.read_text())
    record["failures"] = dict(failures)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1, sort_keys=True))
    part.rename(path)


def check_root(root: Path) -> None:
    """Refuse an output folder that holds something else.

    Raises
    ------
    DataError
        The path is a file, or a folder with content that is no dataset.
    """
    if root.exists() and not root.is_dir():
        raise DataError(f"--out must be a folder, but {root} is a file; name another")
    ours = {"episodes", "versions", "campaigns", "README.md", ".running", ".failed"}
    if root.exists() and (content := {p.name for p in root.iterdir()}) and not content & ours:
        raise DataError(
            f"{root} holds {sorted(content)[0]!r} and is not a faultset dataset; name an empty or new folder with --out"
        )


def remove_abandoned(root: Path, host_of: Callable[[str], PlatformHost | None]) -> list[str]:
    """Undo and remove what killed runs left; return the episodes concerned.

    Parameters
    ----------
    host_of
        Returns the host of a platform, or None to leave its episodes alone this time.

    Raises
    ------
    PlatformError
        Something could not be undone; what leads to it stays, so that it can be tried again.
    """
    removed = []
    for folder in working_folders(root):
        host = host_of(folder.platform) if folder.is_abandoned() else None
        if host is not None:
            host.undo_abandoned(folder.journal)
            removed.append(folder.note.stem)
            folder.release()
    for unfinished in (root / "episodes").glob("*.incomplete"):
        episode = unfinished.name.removesuffix(".incomplete")
        if not (root / ".running" / f"{episode}.json").exists():
            shutil.rmtree(unfinished, ignore_errors=True)
    return removed


def run_campaign(
    plans: Sequence[Plan],
    root: Path,
    *,
    jobs: int,
    settings: Mapping[str, Any],
    watch: Watcher,
    stopping: Callable[[], bool],
) -> list[Result]:
    """Run all plans that have no episode yet, at most `jobs` at a time.

    An episode that fails is tried once more; a second failure is a result, not a gap. When `stopping` says so, no
    more are begun, and those under way are told to undo and end.
    """
    done = [p for p in plans if (root / "episodes" / p.episode).exists()]
    results = [Result(plan=p, outcome=EpisodeOutcome(episode=p.episode), wall_s=0.0, resumed=True) for p in done]
    waiting = [(p, 1) for p in plans if p not in done]
    running: dict[str, Running] = {}
    selector = selectors.DefaultSelector()
    last_start, told = 0.0, False
    watch(running, results, len(waiting))
    try:
        while running or (waiting and not stopping()):
            if stopping() and not told:
                told = True
                for episode in running.values():
                    episode.process.terminate()
            may_start = not stopping() and time.monotonic() - last_start >= (STAGGER_S if running else 0.0)
            if waiting and len(running) < jobs and may_start:
                plan, attempt = waiting.pop(0)
                running[plan.episode] = _start(plan, attempt, root, jobs, settings)
                selector.register(_output(running[plan.episode]), selectors.EVENT_READ, plan.episode)
                last_start = time.monotonic()
            for key, _ in selector.select(timeout=0.25):
                episode = running[key.data]
                line = _output(episode).readline()
                if line:
                    _hear(episode, line)
                    continue
                selector.unregister(key.fileobj)
                del running[key.data]
                result = _finish(episode)
                outcome = result.outcome
                retry = outcome.failure and outcome.retriable and not outcome.interrupted
                if retry and episode.attempt < ATTEMPTS and not stopping():
                    waiting.append((episode.plan, episode.attempt + 1))
                else:
                    results.append(result)
            watch(running, results, len(waiting))
    finally:
        for episode in running.values():
            episode.process.terminate()
        for episode in running.values():
            episode.process.wait()
        selector.close()
    return results


def _start(plan: Plan, attempt: int, root: Path, jobs: int, settings: Mapping[str, Any]) -> Running:
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
    )
    assignment = EpisodeAssignment(plan=plan, root=root, parent=os.getpid(), parallel=jobs, settings=dict(settings))
    assert process.stdin is not None
    process.stdin.write(assignment.to_line())
    process.stdin.flush()
    return Running(plan=plan, process=process, attempt=attempt, errors=errors)


def _output(episode: Running) -> Any:
    return episode.process.stdout


def _hear(episode: Running, line: str) -> None:
    message = read_message(line)
    if isinstance(message, PhaseReport):
        episode.phase, episode.phase_end_ns = message.phase, message.end_ns
    else:
        episode.outcome = message


def _finish(episode: Running) -> Result:
    episode.process.wait()
    for stream in (episode.process.stdin, episode.process.stdout):
        if stream:
            stream.close()
    episode.errors.seek(0)
    errors = episode.errors.read()
    episode.errors.close()
    outcome = episode.outcome
    if outcome is None:
        last = (errors.strip().splitlines() or [f"exit code {episode.process.returncode}"])[-1]
        outcome = EpisodeOutcome(episode=episode.plan.episode, failure=f"the episode's process ended: {last}")
    return Result(plan=episode.plan, outcome=outcome, wall_s=time.monotonic() - episode.started)
