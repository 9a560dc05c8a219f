"""Recorded runs of agents as rows of an evaluation, by the rules that hold for baselines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faultset.agents.runs.looks import RunLook, look_of
from faultset.agents.runs.record import AgentRun
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import printable
from faultset.evaluators.agent_evaluation.questions import AgentQuestion, alarms_of_rows, questions_of
from faultset.evaluators.agent_evaluation.recorded_runs import RecordedRun
from faultset.evaluators.agent_evaluation.rows import RowContext, empty_row, rows_of_run
from faultset.evaluators.execution.plan import majority_labels
from faultset.evaluators.execution.settings import EvaluationScope
from faultset.evaluators.results.provenance import settings_hash
from faultset.evaluators.results.rows import ResultRow, Status
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

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
                yield from (_empty(truth, context, task, question, trial, "no_alarm", reason) for trial in trials)
                continue
            answered = by_episode.get(question.episode, ())
            for run in answered:
                self._check_alarm(run, question)
                yield from (row for row in rows_of_run(run, truth, context) if row.task == task)
            if not answered:
                yield _empty(truth, context, task, question, trials[0], "missing", "no run is about this episode")

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


def _empty(
    truth: Truth, context: RowContext, task: str, question: AgentQuestion, trial: int, status: Status, reason: str
) -> ResultRow:
    return empty_row(truth, context, task=task, protocol=question.protocol, trial=trial, status=status, reason=reason)
