"""Agents of an evaluation: their runs on dask, then the rows of all runs, those that were made before among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.agents.models.contract import ModelFailure
from faultset.agents.running.run import FinishedRun
from faultset.agents.runs.looks import RunLook, look_of
from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.storage import trajectory_file, write_runs
from faultset.agents.trajectories.model import Trajectory
from faultset.agents.trajectories.reading import read_trajectory
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.core.printable import printable
from faultset.datasets.training.folds import CROSS, Fold
from faultset.evaluators.agent_evaluation.batches import (
    AgentBatch,
    AgentTrial,
    check_replies_are_kept,
    run_batches,
    run_name_of,
    store,
)
from faultset.evaluators.agent_evaluation.choice import AgentChoice, AgentSettings, ChosenAgent, label_of
from faultset.evaluators.agent_evaluation.questions import AgentQuestion, alarms_of_rows, questions_of
from faultset.evaluators.agent_evaluation.rows import RowContext, empty_row, rows_of_run
from faultset.evaluators.execution.label_cache import labels_folder
from faultset.evaluators.execution.planning.settings import EvaluationSettings
from faultset.evaluators.execution.planning.training_labels import majority_label_of
from faultset.evaluators.results.output_folder import writing
from faultset.evaluators.results.provenance import settings_hash
from faultset.evaluators.results.rows import ResultRow, Status
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from distributed import Client

    from faultset.baselines.api.registry import BaselineSpec
    from faultset.evaluators.execution.dataset_source import DatasetSource

RUNS_FOLDER = "agent-runs"
"""Of the results: records and trajectories of all runs."""
REPLIES = "replies"
"""In it: what models replied, from which an interrupted evaluation goes on without paying again."""
AgentProgress = Callable[[int, int, float], None]
"""Told of the runs that are finished, of how many, and what they have cost in US dollars."""


@dataclass(frozen=True, kw_only=True)
class AgentResults:
    """What agents answered, and what it took."""

    rows: tuple[ResultRow, ...] = ()
    runs: tuple[AgentRun, ...] = ()
    looks: Mapping[str, RunLook] = field(default_factory=dict)
    """Run -> what it looked at."""


class AgentEvaluation:
    """Runs and scores agents on the tested episodes of a dataset.

    Parameters
    ----------
    folds
        Whose test episodes are asked about; each once.
    training_truths
        Of another dataset that is learned from.
    folder
        Of the results; None writes nothing.
    fresh
        Ask models again, also for what they replied before.
    """

    def __init__(
        self,
        choice: AgentChoice,
        agents: AgentSettings,
        source: DatasetSource,
        settings: EvaluationSettings,
        folds: Sequence[Fold],
        *,
        training_truths: Iterable[Truth] = (),
        folder: Path | None = None,
        fresh: bool = False,
    ) -> None:
        self._choice, self._agents, self._source, self._settings = choice, agents, source, settings
        # workers elsewhere stand in other folders than this process
        self._folder = None if folder is None else folder.absolute() / RUNS_FOLDER
        self._fresh = fresh
        self._truths = {truth.episode: truth for truth in source.truths}
        known = self._truths | {truth.episode: truth for truth in training_truths}
        tested = [episode for fold in folds for episode in fold.test]
        if len({*tested}) < len(tested):
            raise UsageError(
                f'split "{settings.split}" tests every episode more than once, and an agent answers once; choose a '
                "split that tests each once"
            )
        self._folds = {episode: fold.number for fold in folds for episode in fold.test}
        self._majority = {
            fold.number: majority_label_of([known[e] for e in (*fold.faulty_train, *fold.healthy_train)])
            for fold in folds
        }
        self._questions: list[AgentQuestion] = []

    def check(self, specs: Iterable[BaselineSpec]) -> None:
        """Raise UsageError where no chosen baseline tells the alarm that agents are given."""
        detector, settings = self._settings.alarm_detector, self._settings
        told = any(spec.name == detector or spec.task != "detection" for spec in specs if spec.task in settings.tasks)
        if self._choice.run and "detected" in settings.protocols and {*settings.tasks} - {"detection"} and not told:
            raise UsageError(
                f"agents are given the alarm of {detector}, and nothing that is evaluated tells it; add {detector} or "
                "a localizer to --baselines, or choose --protocol oracle"
            )

    def run(
        self, client: Client, workers: int, rows: Iterable[ResultRow], progress: AgentProgress | None = None
    ) -> AgentResults:
        """Make the runs, read those that were made before, and return all rows.

        Parameters
        ----------
        workers
            Batches of runs at once.
        rows
            Of the baselines, for the alarms that they were given.
        """
        alarms = alarms_of_rows(rows, self._settings.alarm_detector)
        tested = [self._truths[episode] for episode in self._folds]
        self._questions = list(questions_of(tested, self._settings.tasks, self._settings.protocols, alarms))
        batches = [batch for chosen in self._choice.run for batch in self._batches_of(chosen)]
        total = sum(len(batch.trials) for batch in batches)
        made: list[FinishedRun] = []

        def finished(runs: list[FinishedRun]) -> bool:
            made.extend(self._stored(one) for one in runs)
            spent = sum(one.run.cost_usd or 0.0 for one in made)
            if progress is not None and total:
                progress(len(made), total, spent)
            return self._agents.max_cost_usd is None or spent < self._agents.max_cost_usd

        finished([])
        if self._folder is not None and any(batch.server is not None for batch in batches):
            check_replies_are_kept(client, self._folder / REPLIES)
        if self._fresh and self._folder is not None:
            for trial in (trial for batch in batches for trial in batch.trials):
                (self._folder / REPLIES / f"{trial.run}.jsonl").unlink(missing_ok=True)
        try:
            # what is free or was begun before comes first, whatever the budget
            first = [batch for batch in batches if batch.server is None or _has_replies(batch)]
            run_batches(client, first, workers, lambda runs: finished(runs) or True)
            if finished([]):
                run_batches(client, [batch for batch in batches if batch not in first], workers, finished)
        except ModelFailure as failure:
            kept = (
                "" if self._folder is None else f"; {len(made)} of {total} runs are kept, and the same command goes on"
            )
            raise PlatformError(f"{failure}{kept}") from failure
        rows = [row for chosen in self._choice.run for row in self._rows_of(chosen, made)]
        runs = sorted((one.run for one in made), key=lambda run: run.run)
        if self._folder is not None and made:
            with writing(self._folder):
                write_runs(self._folder, runs)
        looks = {one.run.run: self._look(one.run, one.trajectory) for one in made}
        for folder, replayed in self._choice.replayed:
            rows += self._replayed(folder, replayed)
            runs += replayed
            for run in replayed:
                # what a run looked at is told where its trajectory can be read; its answer counts without
                with suppress(DataError):
                    looks[run.run] = self._look(run, read_trajectory(trajectory_file(folder, run)))
        return AgentResults(rows=tuple(rows), runs=tuple(runs), looks=looks)

    def _look(self, run: AgentRun, trajectory: Trajectory) -> RunLook:
        return look_of(trajectory, self._truths[str(run.episode)].candidates)

    def _batches_of(self, chosen: ChosenAgent) -> Iterable[AgentBatch]:
        by_episode: dict[str, list[AgentTrial]] = {}
        for question in self._questions:
            for trial in self._trials(chosen) if question.is_asked else ():
                name = run_name_of(chosen.label, question, trial, chosen.settings, self._source.digest)
                by_episode.setdefault(question.episode, []).append(
                    AgentTrial(run=name, question=question, trial=trial, seed=self._settings.seed + trial)
                )
        asks = chosen.agent.needs_model
        for episode, trials in by_episode.items():
            # with a model every run is work of its own: most of it is waiting, and costs are looked at in between
            for part in [(trial,) for trial in trials] if asks else [tuple(trials)]:
                yield AgentBatch(
                    agent=chosen.agent.name,
                    settings=chosen.settings,
                    dataset=self._source.name,
                    version=self._source.version,
                    location=self._source.location(episode),
                    trials=part,
                    limits=self._agents.limits,
                    server=self._agents.server if asks else None,
                    price=self._agents.price if asks else None,
                    hidden=(str(labels_folder()), *(() if self._folder is None else (str(self._folder.parent),))),
                    replies=None if self._folder is None else str(self._folder / REPLIES),
                )

    def _trials(self, chosen: ChosenAgent) -> range:
        return range(self._agents.trials if chosen.trials_differ else 1)

    def _stored(self, finished: FinishedRun) -> FinishedRun:
        if self._folder is None:
            return finished
        with writing(self._folder):
            return store(self._folder, finished)

    def _rows_of(self, chosen: ChosenAgent, made: Sequence[FinishedRun]) -> Iterable[ResultRow]:
        context = self._context(chosen.label, chosen.agent.kind, chosen.settings, chosen.code)
        made = [one for one in made if label_of(one.run) == chosen.label]
        for one in made:
            if one.run.episode is not None:
                yield from rows_of_run(one.run, self._truths[one.run.episode], context, one.cpu_seconds)
        there = {(one.run.episode, one.run.task, one.run.protocol, one.run.trial) for one in made}
        for question in self._questions:
            if not question.is_asked:
                yield from self._without_answer(question, context, self._trials(chosen), "no_alarm", self._silence)
                continue
            asked = (question.episode, question.task, question.protocol)
            missing = [trial for trial in self._trials(chosen) if (*asked, trial) not in there]
            reason = f"{self._agents.max_cost_usd} US dollars were spent before"
            yield from self._without_answer(question, context, missing, "cost_limit", reason)

    def _without_answer(
        self, question: AgentQuestion, context: RowContext, trials: Iterable[int], status: Status, reason: str
    ) -> Iterable[ResultRow]:
        for task in question.tasks:
            for trial in trials:
                yield empty_row(
                    self._truths[question.episode],
                    context,
                    task=task,
                    protocol=question.protocol,
                    trial=trial,
                    status=status,
                    reason=reason,
                )

    def _replayed(self, folder: Path, runs: Sequence[AgentRun]) -> Iterable[ResultRow]:
        foreign = next((run for run in runs if run.episode not in self._truths), None)
        if foreign is not None:
            raise DataError(
                f"{printable(folder)} holds runs on other episodes ({printable(str(foreign.episode)[:60])}), and what "
                f"they saw is not {self._source.name}; score them against their own labels with faultset agents score"
            )
        by_label: dict[str, list[AgentRun]] = {}
        for run in runs:
            by_label.setdefault(label_of(run), []).append(run)
        rows: list[ResultRow] = []
        for label, own in by_label.items():
            codes = sorted({f"{run.agent} {run.agent_version}" for run in own})
            context = self._context(label, _kind(own[0]), settings_hash({"runs": label}), ", ".join(codes))
            rows += self._rows_of_label(own, context, folder)
        return rows

    def _rows_of_label(self, runs: Sequence[AgentRun], context: RowContext, folder: Path) -> Iterable[ResultRow]:
        """Yield the rows of runs that were made before, and of questions that none of them answers."""
        answered = {(run.episode, run.task, run.protocol, run.trial or 0): run for run in runs}
        trials = sorted({run.trial or 0 for run in runs})
        for question in self._questions:
            if not question.is_asked:
                yield from self._without_answer(question, context, trials, "no_alarm", self._silence)
                continue
            asked = (question.episode, question.task, question.protocol)
            found = [run for trial in trials if (run := answered.get((*asked, trial))) is not None]
            for run in found:
                yield from rows_of_run(run, self._truths[question.episode], context)
            if not found:
                reason = f"{folder.name} holds no run about this"
                yield from self._without_answer(question, context, trials[:1], "missing", reason)

    @property
    def _silence(self) -> str:
        return f"{self._settings.alarm_detector} raised no alarm"

    def _context(self, label: str, kind: str, settings: str, code: str) -> RowContext:
        return RowContext(
            label=label,
            kind=kind,
            settings=settings,
            code=code,
            dataset=self._source.name,
            version=self._source.version,
            split=self._settings.split or CROSS,
            alarm_detector=self._settings.alarm_detector,
            folds=self._folds,
            majority_labels=self._majority,
        )


def _kind(run: AgentRun) -> str:
    return "control" if run.model is None else "agent"


def _has_replies(batch: AgentBatch) -> bool:
    """Whether a model has replied in a run of the batch before."""
    folder = batch.replies
    return folder is not None and any((Path(folder) / f"{trial.run}.jsonl").is_file() for trial in batch.trials)
