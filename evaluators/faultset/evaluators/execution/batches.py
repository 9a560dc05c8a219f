"""Batches of work for dask workers: fit several baselines, or run several on one episode."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faultset.core.times import SECOND_NS
from faultset.datasets.format.alarm_place import AlarmPlace
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import TELEMETRY
from faultset.datasets.validation.episodes import check_content
from faultset.evaluators.execution.baseline_runs import (
    ACTIONS,
    BaselineRun,
    ExpectedAnswer,
    FittedModel,
    ModelKey,
    RunContext,
    expected_answers,
    hiding_dataset,
    method_process,
)
from faultset.evaluators.execution.cut_episodes import CutCopies, healthy_references
from faultset.evaluators.execution.remote_episodes import EpisodeLocation, local_folders
from faultset.evaluators.execution.runners.messages import (
    EMPTY_BLOB,
    AnswerRequest,
    Blob,
    FitRequest,
    TrainingLabel,
)
from faultset.evaluators.execution.runners.outcomes import RunnerOutcome, filled_row
from faultset.evaluators.execution.runners.runner_pool import machine_pool
from faultset.evaluators.execution.runners.runner_process import RunnerProcess, next_number
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth

PROGRESS_TOPIC = "faultset-answers"
_REPORT_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True)
class FitBatch:
    """Baselines to fit on the same training episodes."""

    fold: int
    healthy: tuple[EpisodeLocation, ...]
    """Training episodes without a fault."""
    faulty: tuple[EpisodeLocation, ...]
    """Training episodes with one, for baselines that need labels."""
    labels: tuple[TrainingLabel, ...]
    """What is true of all of them, healthy ones first."""
    runs: tuple[int, ...]
    """Numbers of the baseline runs in the context."""
    inner: int | None = None
    """Inner fold, for models that only set thresholds."""

    def __call__(self, context: RunContext) -> dict[ModelKey, FittedModel]:
        """Fit one after the other in one runner, which so reads the training episodes once."""
        chosen = [context.runs[number] for number in self.runs]
        read = self.healthy if any(run.learns for run in chosen) else ()
        references = any(run.learns_from_references for run in chosen)
        if references or any("labels" in run.needs for run in chosen):
            read = (*self.healthy, *self.faulty)
        models = {}
        with (
            local_folders(read, _needs(chosen)) as folders,
            healthy_references(folders[len(self.healthy) :] if references else ()) as cut,
            machine_pool().lend(f"fold {self.fold}") as runner,
        ):
            for run in chosen:
                outcome = runner.run(self._request(run, folders, cut, context), context.limits.for_fit())
                if outcome.status == "error":
                    for folder in folders:
                        _refuse_damage(Path(folder))
                models[run.model(self.fold, self.inner)] = FittedModel(
                    status=outcome.status,
                    blob=Blob.of(outcome.model) if outcome.status == "ok" else EMPTY_BLOB,
                    reason=outcome.reason,
                    seconds=outcome.seconds,
                )
                report_progress(1)
        return models

    def _request(
        self, run: BaselineRun, folders: tuple[str, ...], references: tuple[str, ...], context: RunContext
    ) -> FitRequest:
        labelled = "labels" in run.needs
        episodes = folders if labelled else folders[: len(self.healthy)] if run.learns else ()
        if run.learns_from_references:
            episodes = (*episodes, *references)
        process = method_process(run, episodes, (*folders, *references), context)
        return FitRequest(
            number=next_number(),
            process=hiding_dataset(process, folders) if run.learns_from_references else process,
            spec=run.spec,
            seed=run.seed,
            episodes=episodes,
            labels=self.labels if labelled else (),
        )


@dataclass(frozen=True, kw_only=True)
class EpisodeBatch:
    """Baselines to run on one episode, so that its frames are computed once."""

    fold: int
    location: EpisodeLocation
    truth: Truth
    runs: tuple[int, ...]
    """Numbers of the baseline runs in the context."""
    alarm_run: int | None = None
    """The detector whose alarm localizers are given; None when no localizer needs one."""
    trigger_runs: Mapping[str, int] = field(default_factory=dict)
    """Detectors that are some localizer's own trigger, by name."""
    calibration: bool = False
    """Run detectors on a training episode, for thresholds that are set before the test."""
    inner: int | None = None
    """Inner fold whose models are asked: those that were not fitted on the episode."""

    def expected(self, run: BaselineRun, context: RunContext) -> list[ExpectedAnswer]:
        """List the answers that are expected of a run."""
        return [ExpectedAnswer("calibration")] if self.calibration else expected_answers(run, self.truth, context)

    def answers(self, context: RunContext) -> int:
        """Return the number of rows that the batch gives."""
        return sum(len(self.expected(context.runs[number], context)) for number in self.runs)

    def __call__(self, context: RunContext, *fitted: Mapping[ModelKey, FittedModel]) -> list[ResultRow]:
        """Run detectors first, then the others, with the models that were fitted on this fold."""
        models = {key: model for part in fitted for key, model in part.items()}
        chosen = sorted((context.runs[n] for n in self.runs), key=lambda run: (run.task, run.name, run.seed))
        with (
            local_folders((self.location,), _needs(context.runs)) as (folder,),
            CutCopies(folder) as copies,
            machine_pool().lend(folder) as runner,
        ):
            evaluator = EpisodeEvaluator(self, context, models, folder, copies, runner)
            rows: list[ResultRow] = []
            for run in chosen:
                found = list(evaluator.rows_of(run))
                report_progress(len(found))
                rows += found
        return rows


class EpisodeEvaluator:
    """Runs several baselines on one episode, none of them twice on the same input."""

    def __init__(
        self,
        batch: EpisodeBatch,
        context: RunContext,
        models: Mapping[ModelKey, FittedModel],
        folder: str,
        copies: CutCopies,
        runner: RunnerProcess,
    ) -> None:
        self._batch, self._context, self._models = batch, context, models
        self._folder, self._copies, self._runner = folder, copies, runner
        self._truth = batch.truth
        self._detections: dict[tuple[str, int], RunnerOutcome] = {}

    def rows_of(self, run: BaselineRun) -> Iterator[ResultRow]:
        """Yield the rows that are expected of a baseline run."""
        outcomes: dict[tuple[int, AlarmPlace | None], RunnerOutcome] = {}
        for expected in self._batch.expected(run, self._context):
            row = self._empty_row(run, expected)
            if run.task == "detection":
                yield filled_row(row, self._detection_of(run))
                continue
            row, missing = self._with_alarm(row, run)
            alarm_ns = row.given_alarm_ns
            if alarm_ns is None:
                yield dataclasses.replace(row, status="no_alarm", reason=missing)
                continue
            place = self._truth.alarm_place if row.alarm_source == "truth" and "alarm_place" in run.needs else None
            if row.evidence_s is not None:
                end_ns = alarm_ns + round(row.evidence_s * SECOND_NS)
                yield filled_row(row, self._answer(run, alarm_ns, place, self._copies.until(end_ns)))
                continue
            if (alarm_ns, place) not in outcomes:
                outcomes[alarm_ns, place] = self._answer(run, alarm_ns, place)
            yield filled_row(row, outcomes[alarm_ns, place])

    def _with_alarm(self, row: ResultRow, run: BaselineRun) -> tuple[ResultRow, str]:
        """Add the alarm that the baseline is given; where there is none, say why."""
        if row.protocol in ("oracle", "delayed", "evidence"):
            assert self._truth.onset_ns is not None
            given_ns = self._truth.onset_ns + round((row.delay_s or 0.0) * SECOND_NS)
            return dataclasses.replace(row, given_alarm_ns=given_ns, alarm_source="truth"), ""
        own = row.protocol == "own"
        number = self._batch.trigger_runs[run.trigger or ""] if own else self._batch.alarm_run
        assert number is not None
        detector = self._context.runs[number]
        outcome = self._detection_of(detector)
        alarm_ns = outcome.answer.alarm_ns if outcome.answer is not None else None
        why = "raised no alarm" if outcome.status == "ok" else f"failed ({outcome.status}: {outcome.reason})"
        given = dataclasses.replace(row, given_alarm_ns=alarm_ns, alarm_source=detector.name)
        return given, f"{detector.name} {why}"

    def _detection_of(self, detector: BaselineRun) -> RunnerOutcome:
        key = (detector.name, detector.seed)
        if key not in self._detections:
            self._detections[key] = self._answer(detector, 0)
        return self._detections[key]

    def _answer(
        self, run: BaselineRun, alarm_ns: int, place: AlarmPlace | None = None, cut: str | None = None
    ) -> RunnerOutcome:
        model = self._models[run.model(self._batch.fold, self._batch.inner)]
        if model.status != "ok":
            return RunnerOutcome(status=model.status, reason=f"fit: {model.reason}", seconds=0.0)
        folder = cut or self._folder
        process = method_process(run, [folder], [folder], self._context)
        request = AnswerRequest(
            number=next_number(),
            process=process if cut is None else hiding_dataset(process, [self._folder]),
            action=ACTIONS[run.task],
            spec=run.spec,
            seed=run.seed,
            episode=folder,
            model=model.blob,
            alarm_ns=alarm_ns,
            alarm_place=place,
        )
        outcome = self._runner.run(request, self._context.limits)
        if outcome.status == "error":
            _refuse_damage(Path(self._folder))
        return outcome

    def _empty_row(self, run: BaselineRun, expected: ExpectedAnswer) -> ResultRow:
        context, fold = self._context, self._batch.fold
        return ResultRow(
            baseline=run.name,
            kind=run.kind,
            needs=run.needs,
            settings=run.settings,
            dataset=context.dataset,
            version=context.version,
            split=context.split,
            fold=fold,
            task=run.task,
            protocol=expected.protocol,
            delay_s=expected.delay_s,
            evidence_s=expected.evidence_s,
            seed=run.seed,
            status="ok",
            majority_label=context.majority_labels.get(fold) if run.task == "rca" else None,
            fit_seconds=round(self._models[run.model(fold, self._batch.inner)].seconds, 6),
            code=context.code,
            method_code=run.code,
            libraries=context.libraries,
            truth=self._truth,
        )


def _refuse_damage(episode: Path) -> None:
    """Raise DataError where data was damaged while methods run, which must not count as a method's miss."""
    check_content(episode, episode.name, _method_files(episode))


def _method_files(folder: Path) -> list[str]:
    """Return the files of an episode that are there for methods, below its folder."""
    return [CONTEXT_FILE, *(f"{TELEMETRY}/{path.name}" for path in sorted((folder / TELEMETRY).glob("*.parquet")))]


def _needs(runs: Iterable[BaselineRun]) -> frozenset[str]:
    return frozenset(need for run in runs for need in run.needs)


class _Unreported(threading.local):
    """Answers of this thread that are not reported to the client yet, and when it last got a report."""

    def __init__(self) -> None:
        self.answers = 0
        self.last = time.monotonic()


_unreported = _Unreported()


def report_progress(answers: int, *, now: bool = False) -> None:
    """Report progress to the client now and then, where this runs on a dask worker."""
    _unreported.answers += answers
    if not _unreported.answers or (not now and time.monotonic() - _unreported.last < _REPORT_EVERY_S):
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(PROGRESS_TOPIC, _unreported.answers)
    _unreported.answers, _unreported.last = 0, time.monotonic()
