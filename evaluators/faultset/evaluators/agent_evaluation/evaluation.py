"""Recorded runs of agents for an evaluation: logs of Inspect, or a folder that `faultset agents import` has made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.agents.formats.contract import ImportedRun, ImportOptions, agent_format
from faultset.agents.imports import run_name
from faultset.agents.interface.session import SESSION_TASKS
from faultset.agents.runs.looks import RunLook, look_of
from faultset.agents.runs.record import RUNS_FILE, AgentRun, read_runs, trajectory_file
from faultset.agents.trajectory import Trajectory, read_trajectory
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import printable
from faultset.evaluators.agent_evaluation.rows import (
    AgentQuestion,
    RowContext,
    alarms_of_rows,
    empty_row,
    questions_of,
    rows_of_run,
)
from faultset.evaluators.execution.plan import majority_labels
from faultset.evaluators.execution.settings import EvaluationScope
from faultset.evaluators.results.provenance import settings_hash
from faultset.evaluators.results.rows import ResultRow

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

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


_SESSION_TASKS: Mapping[str, tuple[str, ...]] = {
    "detection": ("detection",),
    "localization": ("localization", "all"),
    "rca": ("diagnosis", "all"),
}
"""Task of a table -> tasks of sessions that answer it."""


@dataclass(frozen=True, kw_only=True)
class AgentResults:
    """Answers of agents, and what they took."""

    rows: tuple[ResultRow, ...] = ()
    runs: tuple[AgentRun, ...] = ()
    looks: Mapping[str, RunLook] = field(default_factory=dict)
    """Run -> what it looked at."""
    left_out: tuple[str, ...] = ()
    """Sentences about agents without a row, because every run of theirs failed."""


class AgentEvaluation:
    """Scores recorded runs of agents on the tested episodes of a dataset.

    Raises
    ------
    DataError
        A run is about another episode.
    UsageError
        The split tests an episode more than once.
    """

    def __init__(self, scope: EvaluationScope, runs: Sequence[RecordedRun]) -> None:
        self._scope, self._runs, self._settings = scope, runs, scope.settings
        self._truths = {truth.episode: truth for truth in scope.source.truths}
        if runs:
            scope.check_single_tests("an agent gives")
        self._folds = {episode: fold.number for fold in scope.folds for episode in fold.test}
        self._majority = majority_labels(scope)
        foreign = next((one.run for one in runs if one.run.episode not in self._truths), None)
        if foreign is not None:
            raise DataError(
                f"the runs given with --agents are on other episodes ({printable(str(foreign.episode)[:60])}) than "
                f"{scope.source.name} holds; evaluate the dataset that they were run on"
            )

    def check(self, specs: Iterable[BaselineSpec]) -> None:
        """Raise UsageError if no chosen baseline gives the alarms that the runs were started with."""
        settings, detectors = self._settings, self._settings.alarm_detectors
        given = any(spec.name in detectors or spec.task != "detection" for spec in specs if spec.task in settings.tasks)
        if not given and any(one.run.protocol == "detected" and one.run.task != "detection" for one in self._runs):
            raise UsageError(
                f"agents were given the alarm of {detectors[0]}, but no chosen baseline raises it; add it or a "
                "localizer to --baselines"
            )

    def results(self, rows: Iterable[ResultRow]) -> AgentResults:
        """Return the rows of all runs.

        Parameters
        ----------
        rows
            Of the baselines, with the alarms that they were given.

        Raises
        ------
        DataError
            A run was given another alarm than the baselines.
        """
        alarms = alarms_of_rows(rows, self._scope.alarm_of)
        tested = [self._truths[episode] for episode in self._folds]
        by_label: dict[str, list[RecordedRun]] = {}
        for one in self._runs:
            by_label.setdefault(one.label, []).append(one)
        made: list[ResultRow] = []
        left_out: list[str] = []
        for label, recorded in by_label.items():
            for task in self._settings.tasks:
                runs = [one.run for one in recorded if one.run.task in _SESSION_TASKS[task]]
                if runs and all(run.status == "harness_error" for run in runs):
                    left_out.append(
                        f"{label} is left out of {task}: all {len(runs)} runs failed, the first because "
                        f"{printable(runs[0].status_reason)}"
                    )
                    continue
                for protocol in sorted({run.protocol or "detected" for run in runs}):
                    if task != "detection" and protocol not in self._settings.protocols:
                        continue
                    asked = [run for run in runs if (run.protocol or "detected") == protocol]
                    made += self._rows(label, task, asked, list(questions_of(tested, [task], [protocol], alarms)))
        looks = {
            one.run.run: look_of(one.trajectory, self._truths[str(one.run.episode)].candidates)
            for one in self._runs
            if one.trajectory is not None
        }
        runs = tuple(one.run for one in self._runs)
        return AgentResults(rows=tuple(made), runs=runs, looks=looks, left_out=tuple(left_out))

    def _rows(
        self, label: str, task: str, runs: Sequence[AgentRun], questions: Iterable[AgentQuestion]
    ) -> Iterator[ResultRow]:
        """Yield the rows of an agent at a task and protocol, and of questions that it was not asked."""
        context = self._context(label, runs)
        by_episode: dict[str | None, list[AgentRun]] = {}
        for run in runs:
            by_episode.setdefault(run.episode, []).append(run)
        trials = sorted({run.trial or 0 for run in runs})
        for question in questions:
            truth = self._truths[question.episode]
            if not question.is_asked:
                reason = f"{self._scope.alarm_of(question.episode)} raised no alarm"
                yield from (
                    empty_row(truth, context, task, question.protocol, trial, "no_alarm", reason) for trial in trials
                )
                continue
            answered = by_episode.get(question.episode, ())
            for run in answered:
                self._check_alarm(run, question)
                yield from (row for row in rows_of_run(run, truth, context) if row.task == task)
            if not answered:
                reason = "no run is about this episode"
                yield empty_row(truth, context, task, question.protocol, trials[0], "missing", reason)

    def _check_alarm(self, run: AgentRun, question: AgentQuestion) -> None:
        if question.task != "detection" and run.alarm_ns != question.alarm_ns:
            raise DataError(
                f"a run of {printable(run.agent)} on episode {question.episode} was given another alarm than that of "
                f"{self._scope.alarm_of(question.episode)}; name the detector of the runs with --alarm, and "
                "their split with --split"
            )

    def _context(self, label: str, runs: Sequence[AgentRun]) -> RowContext:
        return RowContext(
            label=label,
            kind="control" if runs[0].model is None else "agent",
            settings=settings_hash({"runs": label}),
            code=", ".join(sorted({f"{run.agent} {run.agent_version}" for run in runs})),
            dataset=self._scope.source.name,
            version=self._scope.source.version,
            split=self._scope.split,
            detector_of=self._scope.alarm_of,
            folds=self._folds,
            majority_labels=self._majority,
        )
