"""Batches of answers for dask workers: several baselines on one episode, none of them twice on the same input."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import TELEMETRY
from faultset.datasets.format.labels import AlarmPlace
from faultset.datasets.validation import check_content
from faultset.evaluators.execution.cut_episodes import CutCopies
from faultset.evaluators.execution.dataset_source import EpisodeLocation, local_folders
from faultset.evaluators.execution.runners.confinement import dataset_places
from faultset.evaluators.execution.runners.messages import (
    EMPTY_BLOB,
    Action,
    AnswerRequest,
    Blob,
    MethodProcess,
    RunnerOutcome,
    filled_row,
)
from faultset.evaluators.execution.runners.runner_process import RunnerProcess, machine_pool, next_number
from faultset.evaluators.execution.settings import EvaluationSettings
from faultset.evaluators.results.rows import Protocol, ResultRow, Status, amount_of
from faultset.evaluators.results.truth import Truth

LEFT_AFTER_DELAY_S = 30
"""A delayed alarm leaves at least this much of the view to look at."""
ACTIONS: Mapping[str, Action] = {"detection": "detect", "localization": "localize", "rca": "diagnose"}


class ModelKey(NamedTuple):
    """Which fitted baseline."""

    baseline: str
    seed: int
    fold: int
    inner: int | None = None
    """Inner fold that it was fitted on; None for the model that is tested."""


class ExpectedAnswer(NamedTuple):
    """An answer that a baseline gives for an episode."""

    protocol: Protocol
    delay_s: float | None = None
    """In the protocol "delayed": seconds from the onset to the given alarm."""
    evidence_s: float | None = None
    """Seconds of the view after the onset that are left, in "detected_evidence" after the given alarm."""

    @property
    def amount(self) -> float:
        """What tells the rows of one protocol apart, as in the key of a row."""
        return amount_of(self.delay_s, self.evidence_s)


@dataclass(frozen=True, kw_only=True)
class BaselineRun:
    """A baseline with a seed: fitted once per fold, then run on every episode."""

    name: str
    kind: str
    task: str
    needs: tuple[str, ...]
    seed: int
    spec: Blob
    settings: str
    """Hash of the settings that answers can depend on."""
    code: str
    """Distribution, version and hash of the baseline's code."""
    built_in: bool
    """Whether it comes with faultset."""
    tables: tuple[str, ...]
    """Tables that it may read."""
    places: tuple[str, ...] = ()
    """Files and folders that its code lies in, where it does not come with faultset."""
    trigger: str | None = None
    """Detector whose alarm this localizer was made for."""
    learns: bool = True
    """Whether it looks at training episodes when it is fitted."""
    learns_from_references: bool = False
    """Whether it is also fitted on the healthy references of training episodes with a fault."""
    own_threshold: bool = True
    """Of a detector: whether it sets its threshold itself."""
    fit_code: str = ""
    """Hash of the code and the parameters that a fit can depend on; empty where fits are not kept."""

    def model(self, fold: int, inner: int | None = None) -> ModelKey:
        """Key of the model that was fitted on a fold."""
        return ModelKey(self.name, self.seed, fold, inner)


@dataclass(frozen=True, kw_only=True)
class FittedModel:
    """A fitted baseline as bytes, or why there is none."""

    status: Status
    blob: Blob = EMPTY_BLOB
    reason: str = ""
    seconds: float = 0.0
    used_again: bool = False
    """Whether an earlier evaluation has made it."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all batches of an evaluation share; sent to each worker once."""

    dataset: str
    version: str
    split: str
    code: str
    libraries: str
    settings: EvaluationSettings
    runs: tuple[BaselineRun, ...]
    """All runs, also of detectors that only raise the alarm for others."""
    hidden: tuple[str, ...] = ()
    """Files that no method may read: earlier results, which hold the truth."""
    fits_bytes: int = 0
    """What fits that are kept for later evaluations may take; 0 where none are kept."""
    majority_labels: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Fold -> system level and fault type that its training labels most often have."""
    trained_diagnoses: Mapping[int, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """Fold -> all pairs of system level and fault type that its training labels have."""


def needs_of(runs: Iterable[BaselineRun]) -> frozenset[str]:
    """Return what any of some runs is given beyond telemetry."""
    return frozenset(need for run in runs for need in run.needs)


def method_process(
    run: BaselineRun, episodes: Sequence[str], shared: Sequence[str], context: RunContext
) -> MethodProcess:
    """Describe the process that a run is carried out in.

    Parameters
    ----------
    episodes
        Folders of the episodes that the run is given.
    shared
        Folders of the episodes that the process may be given, where methods share one.
    """
    if run.built_in:
        return MethodProcess(
            key="\n".join(shared), built_in=True, episodes=tuple(shared), tables=None, hidden=context.hidden
        )
    return MethodProcess(
        key="\n".join((run.name, str(run.seed), *episodes)),
        built_in=False,
        episodes=tuple(episodes),
        tables=run.tables,
        code=run.places,
        hidden=context.hidden,
    )


def hiding_dataset(process: MethodProcess, episodes: Sequence[str]) -> MethodProcess:
    """Keep a process that is given copies of episodes from the datasets that these come from."""
    whole = [path for folder in episodes for path in dataset_places(Path(folder))]
    return replace(process, hidden=(*process.hidden, *dict.fromkeys(whole)))


def expected_answers(run: BaselineRun, truth: Truth, settings: EvaluationSettings) -> list[ExpectedAnswer]:
    """List the answers that are expected of a run for a scored episode.

    Without a fault there is no root cause: localizers are then only given alarms that are false. An onset that the
    truth does not know cannot be given.
    """
    budgets = budgets_of(truth, settings.evidence)
    if run.task == "detection":
        return [ExpectedAnswer("detected"), *(ExpectedAnswer("evidence", None, one) for one in budgets)]
    expected: list[ExpectedAnswer] = []
    if "detected" in settings.protocols:
        expected.append(ExpectedAnswer("detected"))
    if not truth.faulty:
        return expected
    if "detected" in settings.protocols:
        if run.trigger is not None:
            expected.append(ExpectedAnswer("own"))
        expected += [ExpectedAnswer("detected_evidence", None, one) for one in budgets]
    if truth.onset_ns is not None:
        if "oracle" in settings.protocols:
            expected.append(ExpectedAnswer("oracle"))
            expected += [ExpectedAnswer("evidence", None, one) for one in budgets]
        if run.task == "localization":
            expected += [ExpectedAnswer("delayed", delay) for delay in delays_of(truth, settings.delays)]
    return expected


def budgets_of(truth: Truth, budgets: Sequence[float]) -> list[float]:
    """Choose the budgets of evidence that an episode's view has after the onset of its fault."""
    if not truth.faulty or truth.onset_ns is None:
        return []
    return [one for one in budgets if one <= (truth.view_end_ns - truth.onset_ns) / SECOND_NS]


def delays_of(truth: Truth, delays: Sequence[float]) -> list[float]:
    """Choose the delays of a grid that leave enough of an episode's view."""
    if truth.onset_ns is None:
        return []
    longest = (truth.view_end_ns - truth.onset_ns) / SECOND_NS - LEFT_AFTER_DELAY_S
    return [delay for delay in delays if delay <= longest]


PROGRESS_TOPIC = "faultset-answers"
_REPORT_EVERY_S = 0.5


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
        return (
            [ExpectedAnswer("calibration")] if self.calibration else expected_answers(run, self.truth, context.settings)
        )

    def answers(self, context: RunContext) -> int:
        """Return the number of rows that the batch gives."""
        return sum(len(self.expected(context.runs[number], context)) for number in self.runs)

    def __call__(
        self, context: RunContext, *fitted: Mapping[ModelKey, FittedModel], neighbours: Sequence[str] = ()
    ) -> list[ResultRow]:
        """Run detectors first, then the others, with the models that were fitted on this fold.

        Parameters
        ----------
        neighbours
            Folders of this episode and of those that the same task looks at next: methods that come with faultset may
            go on in the same process, which saves most of the time that a cheap method takes.
        """
        models = {key: model for part in fitted for key, model in part.items()}
        chosen = sorted((context.runs[n] for n in self.runs), key=lambda run: (run.task, run.name, run.seed))
        with (
            local_folders((self.location,), needs_of(context.runs)) as (folder,),
            CutCopies(folder) as copies,
            machine_pool().lend(neighbours[0] if folder in neighbours else folder) as runner,
        ):
            evaluator = EpisodeEvaluator(self, context, models, copies, runner, neighbours)
            rows: list[ResultRow] = []
            for row in evaluator.rows_of(chosen):
                report_progress(1)
                rows.append(row)
        return rows


class _Input(NamedTuple):
    """What an answer can depend on, beside the method and the episode."""

    alarm_ns: int = 0
    place: AlarmPlace | None = None
    end_ns: int | None = None
    """Where the view ends, UTC nanoseconds; None where the episode's view ends."""


class EpisodeEvaluator:
    """Runs several baselines on one episode, none of them twice on the same input."""

    def __init__(
        self,
        batch: EpisodeBatch,
        context: RunContext,
        models: Mapping[ModelKey, FittedModel],
        copies: CutCopies,
        runner: RunnerProcess,
        neighbours: Sequence[str] = (),
    ) -> None:
        self._batch, self._context, self._models = batch, context, models
        self._neighbours = neighbours
        self._copies, self._runner = copies, runner
        self._truth = batch.truth
        self._detections: dict[tuple[str, int], RunnerOutcome] = {}

    def rows_of(self, runs: Sequence[BaselineRun]) -> Iterator[ResultRow]:
        """Yield the expected rows of baseline runs: of all on the whole view first, then on each copy that ends sooner.

        A process looks at one copy, so that frames are made once for all methods that share it.
        """
        asked: list[tuple[BaselineRun, ResultRow, _Input]] = []
        for run in runs:
            for expected in self._batch.expected(run, self._context):
                row = self._empty_row(run, expected)
                place = None
                if run.task != "detection":
                    row, missing = self._with_alarm(row, run)
                    if row.given_alarm_ns is None:
                        yield dataclasses.replace(row, status="no_alarm", reason=missing)
                        continue
                    told = row.alarm_source == "truth" and "alarm_place" in run.needs
                    place = self._truth.alarm_place if told else None
                asked.append((run, row, _Input(row.given_alarm_ns or 0, place, self._end_of(row))))
        outcomes: dict[tuple[str, int, _Input], RunnerOutcome] = {}
        for run, row, given in sorted(asked, key=lambda one: one[2].end_ns or 0):
            key = (run.name, run.seed, given)
            if run.task == "detection" and given == _Input():
                outcomes[key] = self._detection_of(run)
            elif key not in outcomes:
                outcomes[key] = self._answer(run, given)
            yield filled_row(row, outcomes[key])

    def _end_of(self, row: ResultRow) -> int | None:
        """Return where the view of an answer ends before the episode's does, UTC nanoseconds."""
        since_ns = self._truth.onset_ns if row.given_alarm_ns is None else row.given_alarm_ns
        if row.evidence_s is None or since_ns is None:
            return None
        end_ns = since_ns + round(row.evidence_s * SECOND_NS)
        return end_ns if end_ns < self._truth.view_end_ns else None

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
            self._detections[key] = self._answer(detector, _Input())
        return self._detections[key]

    def _answer(self, run: BaselineRun, given: _Input) -> RunnerOutcome:
        model = self._models[run.model(self._batch.fold, self._batch.inner)]
        if model.status != "ok":
            return RunnerOutcome(status=model.status, reason=f"fit: {model.reason}", seconds=0.0)
        whole = self._copies.episode
        folder = whole if given.end_ns is None else self._copies.until(given.end_ns)
        shared = self._neighbours if folder in self._neighbours else [folder]
        process = method_process(run, [folder], shared, self._context)
        request = AnswerRequest(
            number=next_number(),
            process=process if folder == whole else hiding_dataset(process, [whole]),
            action=ACTIONS[run.task],
            spec=run.spec,
            seed=run.seed,
            episode=folder,
            model=model.blob,
            alarm_ns=given.alarm_ns,
            alarm_place=given.place,
        )
        outcome = self._runner.run(request, self._context.settings.limits)
        if outcome.status == "error":
            refuse_damage(Path(whole))
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
            class_trained=bool(self._truth.diagnoses & context.trained_diagnoses.get(fold, frozenset()))
            if run.task == "rca"
            else None,
            fit_seconds=round(self._models[run.model(fold, self._batch.inner)].seconds, 6),
            code=context.code,
            method_code=run.code,
            libraries=context.libraries,
            truth=self._truth,
        )


def refuse_damage(episode: Path) -> None:
    """Raise DataError where data was damaged while methods run, which must not count as a method's miss."""
    check_content(episode, episode.name, _method_files(episode))


def _method_files(folder: Path) -> list[str]:
    """Return the files of an episode that are there for methods, below its folder."""
    return [CONTEXT_FILE, *(f"{TELEMETRY}/{path.name}" for path in sorted((folder / TELEMETRY).glob("*.parquet")))]
