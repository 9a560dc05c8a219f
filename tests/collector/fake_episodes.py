"""Episodes without a platform: a program in place of an episode's process, or an executor that runs none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from faultset.collector.campaigns import executors
from faultset.collector.campaigns.episode_processes import EpisodeResult, RunningEpisode
from faultset.collector.campaigns.episode_queue import SlotState, WaitingEpisode
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.plan import Plan
from faultset.datasets.examples import write_example_dataset
from tests.collector.plan_samples import PLAN

PROGRAM = """
import json, os, pathlib, shutil, signal, sys, time
given = json.loads(sys.stdin.readline())
episode, root, parent = given["plan"]["episode"], pathlib.Path(given["root"]), given["parent"]
told = pathlib.Path(sys.argv[1])

def say(**fields):
    print(json.dumps(fields), flush=True)

def stopped(number, frame):
    say(episode=episode, failure="stopped", interrupted=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, stopped)
(told / f"{episode}.begun-{os.getpid()}").touch()
say(phase="fault")
while (told / f"{episode}.hold").exists():
    if os.getppid() != parent:
        sys.exit(1)
    time.sleep(0.02)
try:
    (told / f"{episode}.fail").unlink()
except FileNotFoundError:
    part = root / "episodes" / f"{episode}.incomplete"
    shutil.copytree(told / "template", part)
    part.rename(part.with_name(episode))
    say(episode=episode, verdict="none")
else:
    logs = root / ".failed" / episode
    logs.mkdir(parents=True)
    (logs / "reason.txt").write_text("geo was not healthy")
    say(episode=episode, failure="geo was not healthy", logs=str(logs))
"""


@dataclass(frozen=True)
class FakeEpisodes:
    """What the program is told, and what it has done."""

    folder: Path

    @staticmethod
    def make(folder: Path) -> FakeEpisodes:
        """Write the program and the episode that it copies."""
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        write_example_dataset(folder / "data", episodes=1, baseline_s=10, fault_s=10)
        (only,) = (folder / "data" / "episodes").iterdir()
        only.rename(folder / "template")
        return FakeEpisodes(folder)

    @property
    def program(self) -> tuple[str, ...]:
        """Arguments of the interpreter."""
        return ("-S", str(self.folder / "program.py"), str(self.folder))

    def hold(self, plan: Plan) -> None:
        """Let the plan's episodes not end."""
        (self.folder / f"{plan.episode}.hold").touch()

    def release(self, plan: Plan) -> None:
        """Let the plan's episodes end."""
        (self.folder / f"{plan.episode}.hold").unlink()

    def fail_once(self, plan: Plan) -> None:
        """Let the next of the plan's episodes fail."""
        (self.folder / f"{plan.episode}.fail").touch()

    def runs(self, plan: Plan) -> int:
        """Count how often the plan was begun."""
        return len(self.processes(plan))

    def processes(self, plan: Plan) -> list[int]:
        """Return the processes in which the plan was begun."""
        return [int(path.name.rpartition("-")[2]) for path in self.folder.glob(f"{plan.episode}.begun-*")]


class FakeExecutor:
    """Ends each episode at once, as `run` says."""

    def __init__(self, root: Path, run: Callable[[WaitingEpisode, Path], EpisodeOutcome]) -> None:
        self.location = str(root)
        self._root, self._run = root, run
        self._ended: list[tuple[WaitingEpisode, EpisodeResult]] = []

    @staticmethod
    def install(monkeypatch: pytest.MonkeyPatch, run: Callable[[WaitingEpisode, Path], EpisodeOutcome]) -> None:
        """Use it in place of the executor of this machine."""

        def make(host: object, root: Path, settings: object, **options: Any) -> FakeExecutor:
            return FakeExecutor(root, run)

        monkeypatch.setattr(executors, "LocalExecutor", make)

    def check_slot(self) -> SlotState:
        """Allow one episode at a time."""
        return SlotState(is_free=not self._ended)

    def start(self, waiting: WaitingEpisode) -> RunningEpisode:
        """Run an episode."""
        outcome = self._run(waiting, self._root)
        result = EpisodeResult(plan=waiting.plan, outcome=outcome, attempts=waiting.attempt, wall_s=1.0)
        self._ended.append((waiting, result))
        return RunningEpisode(waiting=waiting, process=Mock(), errors=Mock())

    def wait(self, timeout_s: float) -> list[tuple[WaitingEpisode, EpisodeResult]]:
        """Return the episode that has ended."""
        return [self._ended.pop()]

    def stop(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def plans(number: int) -> tuple[Plan, ...]:
    """Return different plans."""
    return tuple(replace(PLAN, episode=f"e{place}", seed=place) for place in range(number))


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
