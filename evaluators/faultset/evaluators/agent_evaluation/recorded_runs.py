"""Runs of agents for an evaluation: logs of Inspect, or a folder that `faultset agents import` has made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from faultset.agents.formats.contract import ImportedRun, ImportOptions, agent_format
from faultset.agents.imports import run_name
from faultset.agents.interface.session import SESSION_TASKS
from faultset.agents.runs.record import RUNS_FILE, AgentRun, read_runs, trajectory_file
from faultset.agents.trajectory import Trajectory, read_trajectory
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import printable

_SCORED_ELSEWHERE = ("mitigation",)
"""Tasks that the oracle of a live episode judges."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A run of an agent on an episode of ours."""

    run: AgentRun
    trajectory: Trajectory | None
    """None if its file is damaged or gone; the answer counts all the same."""

    @property
    def label(self) -> str:
        """Name of the agent in tables, with its model if it has one."""
        return self.run.agent if self.run.model is None else f"{self.run.agent} ({self.run.model})"


def read_recorded_runs(paths: Iterable[str | Path]) -> list[RecordedRun]:
    """Read the runs at all paths; runs of one agent about one question are numbered as trials.

    Raises
    ------
    DataError
        A path holds no runs, or runs of tasks that are not ours.
    UsageError
        Logs of Inspect need its library, which is not installed.
    """
    runs: dict[str, RecordedRun] = {}
    for path in dict.fromkeys(Path(one) for one in paths):
        kept = [one for one in _read(path) if one.run.task not in _SCORED_ELSEWHERE]
        foreign = next((one.run for one in kept if one.run.task not in SESSION_TASKS), None)
        if foreign is not None:
            raise DataError(
                f"{printable(path)} holds runs of other tasks ({printable(foreign.dataset or foreign.task)}); evaluate "
                "reads runs of faultset/detection, faultset/localization and faultset/root_cause. Score other runs "
                "with faultset agents import and faultset agents score"
            )
        if not kept:
            raise DataError(f"{printable(path)} holds no runs on recorded episodes; give other logs with --agents")
        runs |= {one.run.run: one for one in kept}
    trials: Counter[tuple[str | None, ...]] = Counter()
    numbered = []
    for one in runs.values():
        question = (one.label, one.run.episode, one.run.task, one.run.protocol)
        numbered.append(
            RecordedRun(run=one.run.model_copy(update={"trial": trials[question]}), trajectory=one.trajectory)
        )
        trials[question] += 1
    return numbered


def check_agent_names(runs: Iterable[RecordedRun], taken: Collection[str]) -> None:
    """Raise UsageError if an agent has the name of a method in the same tables."""
    clash = next((one.label for one in runs if one.label in taken), None)
    if clash is not None:
        raise UsageError(f'an agent and a method are both called "{clash}"; leave one of them out')


def _read(path: Path) -> Sequence[RecordedRun]:
    if not (path / RUNS_FILE).is_file():
        return _read_logs(path)
    recorded = []
    for run in read_runs(path):
        trajectory = None
        with suppress(DataError):
            trajectory = read_trajectory(trajectory_file(path, run))
        recorded.append(RecordedRun(run=run, trajectory=trajectory))
    return recorded


def _read_logs(path: Path) -> Sequence[RecordedRun]:
    """Read logs, the newest last; a sample that was retried replaces the failed one of the same task."""
    logs = agent_format("inspect")
    by_key: dict[str, ImportedRun] = {}
    for file in logs.files(path):
        for one in logs.runs(file, ImportOptions()):
            earlier = by_key.get(one.key)
            if earlier is None or one.run.status != "harness_error" or earlier.run.status == "harness_error":
                by_key[one.key] = one
    return [
        RecordedRun(run=one.run.model_copy(update={"run": run_name(key)}), trajectory=one.trajectory)
        for key, one in by_key.items()
    ]
