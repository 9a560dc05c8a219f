"""Batches of work for dask: several baselines on one episode, which share computed inputs."""

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
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.validation import check_content
from faultset.evaluators.execution.dataset_source import EpisodeLocation, TruncatedCopies, local_folders
from faultset.evaluators.execution.runners.answers import fill_row
from faultset.evaluators.execution.runners.baseline_worker import dataset_paths
from faultset.evaluators.execution.runners.messages import (
    EMPTY_BLOB,
    Action,
    AnswerRequest,
    Blob,
    MethodProcess,
    RunnerOutcome,
)
from faultset.evaluators.execution.runners.runner_process import RunnerProcess, machine_pool, next_number
from faultset.evaluators.execution.settings import EvaluationSettings
from faultset.evaluators.results.rows import Protocol, ResultRow, Status, amount_of
from faultset.evaluators.results.truth import Truth

MIN_VIEW_AFTER_DELAY_S = 30
"""Minimum time between a delayed alarm and the end of the view."""
ACTIONS: Mapping[str, Action] = {"detection": "detect", "localization": "localize", "rca": "diagnose"}


class ModelKey(NamedTuple):
    """Identifies a fitted baseline."""

    baseline: str
    seed: int
    fold: int
    inner: int | None = None
    """Inner fold it was fitted on; None for the tested model."""


class ExpectedAnswer(NamedTuple):
    """An answer that a baseline must give for an episode."""

    protocol: Protocol
    delay_s: float | None = None
    """In protocol "delayed": seconds from the onset to the alarm that the method gets."""
    evidence_s: float | None = None
    """Seconds of the view kept after the onset; in "detected_evidence", after the alarm that the method gets."""

    @property
    def amount(self) -> float:
        """Return the delay or evidence budget, which distinguishes rows of one protocol."""
        return amount_of(self.delay_s, self.evidence_s)


@dataclass(frozen=True, kw_only=True)
class BaselineRun:
    """A baseline with a seed: fitted once per fold and run on every test episode."""

    name: str
    kind: str
    task: str
    needs: tuple[str, ...]
    seed: int
    spec: Blob
    settings: str
    """Hash of the settings that affect answers."""
    code: str
    """Distribution, version and hash of the baseline's code."""
    built_in: bool
    """Whether it comes with faultset."""
    tables: tuple[str, ...]
    """Tables that it may read."""
    code_paths: tuple[str, ...] = ()
    """Files and folders of its code; empty for a built-in method."""
    own_detector: str | None = None
    """Detector that this localizer was designed for."""
    learns: bool = True
    """Whether it reads training episodes when it is fitted."""
    learns_from_references: bool = False
    """Whether it is also fitted on the healthy references of training episodes with a fault."""
    own_threshold: bool = True
    """Whether this detector sets its threshold itself."""
    fit_code: str = ""
    """Hash of the code and parameters that affect a fit; empty if its fits are not cached."""

    def model(self, fold: int, inner: int | None = None) -> ModelKey:
        return ModelKey(self.name, self.seed, fold, inner)


@dataclass(frozen=True, kw_only=True)
class FittedModel:
    """A fitted baseline as bytes, or why the fit failed."""

    status: Status
    blob: Blob = EMPTY_BLOB
    reason: str = ""
    seconds: float = 0.0
    is_cached: bool = False
    """Whether it comes from an earlier evaluation."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Values shared by all batches of an evaluation; sent to each worker once."""

    dataset: str
    version: str
    split: str
    code: str
    libraries: str
    settings: EvaluationSettings
    runs: tuple[BaselineRun, ...]
    """All runs, including detectors that only raise alarms for localizers."""
    hidden: tuple[str, ...] = ()
    """Files that no method may read, such as earlier results, which contain the truth."""
    fits_bytes: int = 0
    """Size limit of the cache of fits; 0 turns it off."""
    online_alarms: Mapping[str, int | None] = field(default_factory=dict)
    """See `EvaluationScope.online_alarms`."""
    majority_labels: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Fold -> most frequent (system level, fault type) of its training labels."""
    training_diagnoses: Mapping[int, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """Fold -> all pairs (system level, fault type) among its training labels."""


def collect_needs(runs: Iterable[BaselineRun]) -> frozenset[str]:
    """Return everything beyond telemetry that any of the runs needs."""
    return frozenset(need for run in runs for need in run.needs)


def method_process(
    run: BaselineRun, episodes: Sequence[str], shared: Sequence[str], context: RunContext
) -> MethodProcess:
    """Describe the process for a run.

    `episodes`: folders of the episodes that the run reads.
    `shared`: folders of all episodes that a shared process may read, for a built-in method.
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
        code=run.code_paths,
        hidden=context.hidden,
    )


def hide_dataset(process: MethodProcess, episodes: Sequence[str]) -> MethodProcess:
    """Hide the original datasets from a process that works on copies of episodes."""
    paths = [path for folder in episodes for path in dataset_paths(Path(folder))]
    return replace(process, hidden=(*process.hidden, *dict.fromkeys(paths)))


def list_expected_answers(run: BaselineRun, truth: Truth, settings: EvaluationSettings) -> list[ExpectedAnswer]:
    """List the answers that a run must give for a scored episode.

    Episodes without a fault have no root cause, so localizers only get false alarms there. Protocols that pass the
    onset are left out if the onset is unknown.
    """
    budgets = select_budgets(truth, settings.evidence)
    if run.task == "detection":
        return [ExpectedAnswer("detected"), *(ExpectedAnswer("evidence", None, seconds) for seconds in budgets)]
    expected: list[ExpectedAnswer] = []
    if "detected" in settings.protocols:
        expected.append(ExpectedAnswer("detected"))
    if not truth.faulty:
        return expected
    if "detected" in settings.protocols:
        if run.own_detector is not None:
            expected.append(ExpectedAnswer("own"))
        expected += [ExpectedAnswer("detected_evidence", None, seconds) for seconds in budgets]
    if truth.onset_ns is not None:
        if "oracle" in settings.protocols:
            expected.append(ExpectedAnswer("oracle"))
            expected += [ExpectedAnswer("evidence", None, seconds) for seconds in budgets]
        if run.task == "localization":
            expected += [ExpectedAnswer("delayed", delay) for delay in select_delays(truth, settings.delays)]
    return expected


def select_budgets(truth: Truth, budgets: Sequence[float]) -> list[float]:
    """Return the evidence budgets that fit between the onset and the end of the view."""
    if not truth.faulty or truth.onset_ns is None:
        return []
    return [seconds for seconds in budgets if seconds <= (truth.view_end_ns - truth.onset_ns) / SECOND_NS]


def select_delays(truth: Truth, delays: Sequence[float]) -> list[float]:
    """Return the delays after which at least `MIN_VIEW_AFTER_DELAY_S` of the view remain."""
    if truth.onset_ns is None:
        return []
    longest = (truth.view_end_ns - truth.onset_ns) / SECOND_NS - MIN_VIEW_AFTER_DELAY_S
    return [delay for delay in delays if delay <= longest]


PROGRESS_TOPIC = "faultset-answers"
_REPORT_EVERY_S = 0.5


class _UnreportedAnswers(threading.local):
    """Number of answers of this thread not yet reported, and the time of its last report."""

    def __init__(self) -> None:
        self.answers = 0
        self.last = time.monotonic()


_unreported = _UnreportedAnswers()


def report_progress(answers: int, *, now: bool = False) -> None:
    """Report progress to the client, at most every 0.5 s; do nothing outside a dask worker."""
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
    """Baselines to run on one episode; its frames are computed once for all of them."""

    fold: int
    location: EpisodeLocation
    truth: Truth
    runs: tuple[int, ...]
    """Indices of the baseline runs in the context."""
    alarm_run: int | None = None
    """Index of the detector whose alarm is passed to localizers; None if no localizer needs one."""
    own_detector_runs: Mapping[str, int] = field(default_factory=dict)
    """Name -> index of the detectors that localizers were designed for."""
    calibration: bool = False
    """Whether detectors run on a training episode, to calibrate thresholds."""
    inner: int | None = None
    """Inner fold whose models are used, because they were not fitted on the episode."""

    def expected(self, run: BaselineRun, context: RunContext) -> list[ExpectedAnswer]:
        """List the answers that a run must give."""
        return (
            [ExpectedAnswer("calibration")]
            if self.calibration
            else list_expected_answers(run, self.truth, context.settings)
        )

    def count_answers(self, context: RunContext) -> int:
        """Return the number of rows that the batch produces."""
        return sum(len(self.expected(context.runs[number], context)) for number in self.runs)

    def __call__(
        self, context: RunContext, *fitted: Mapping[ModelKey, FittedModel], neighbours: Sequence[str] = ()
    ) -> list[ResultRow]:
        """Run detectors first, then the others, with the models fitted on this fold.

        `neighbours`: folders of all episodes of the same dask task. Built-in methods share one process for them, since
        starting a process costs more than a cheap answer.
        """
        models = {key: model for batch in fitted for key, model in batch.items()}
        chosen = sorted((context.runs[n] for n in self.runs), key=lambda run: (run.task, run.name, run.seed))
        with (
            local_folders((self.location,), collect_needs(context.runs)) as (folder,),
            TruncatedCopies(folder) as copies,
            machine_pool().lend(neighbours[0] if folder in neighbours else folder) as runner,
        ):
            evaluator = EpisodeEvaluator(self, context, models, copies, runner, neighbours)
            rows: list[ResultRow] = []
            for row in evaluator.evaluate(chosen):
                report_progress(1)
                rows.append(row)
        return rows


class _Input(NamedTuple):
    """The input of an answer, apart from the method and the episode."""

    alarm_ns: int = 0
    alarm_location: AlarmLocation | None = None
    end_ns: int | None = None
    """End of the view, UTC nanoseconds; None for the episode's own end."""


class EpisodeEvaluator:
    """Runs several baselines on one episode, each once per distinct input."""

    def __init__(
        self,
        batch: EpisodeBatch,
        context: RunContext,
        models: Mapping[ModelKey, FittedModel],
        copies: TruncatedCopies,
        runner: RunnerProcess,
        neighbours: Sequence[str] = (),
    ) -> None:
        self._batch, self._context, self._models = batch, context, models
        self._neighbours = neighbours
        self._copies, self._runner = copies, runner
        self._truth = batch.truth
        self._detections: dict[tuple[str, int], RunnerOutcome] = {}

    def evaluate(self, runs: Sequence[BaselineRun]) -> Iterator[ResultRow]:
        """Yield the rows of all runs, first on the whole view, then on each truncated copy.

        In this order, the frames of a copy are computed once for all methods that share a process.
        """
        inputs: list[tuple[BaselineRun, ResultRow, _Input]] = []
        for run in runs:
            for expected in self._batch.expected(run, self._context):
                row = self._empty_row(run, expected)
                location = None
                if run.task != "detection":
                    row, missing = self._add_alarm(row, run)
                    if row.given_alarm_ns is None:
                        yield dataclasses.replace(row, status="no_alarm", reason=missing)
                        continue
                    uses_location = row.alarm_source == "truth" and "alarm_location" in run.needs
                    location = self._truth.alarm_location if uses_location else None
                inputs.append((run, row, _Input(row.given_alarm_ns or 0, location, self._find_end(row))))
        outcomes: dict[tuple[str, int, _Input], RunnerOutcome] = {}
        for run, row, answer_input in sorted(inputs, key=lambda item: item[2].end_ns or 0):
            key = (run.name, run.seed, answer_input)
            if run.task == "detection" and answer_input == _Input():
                outcomes[key] = self._detect(run)
            elif key not in outcomes:
                outcomes[key] = self._answer(run, answer_input)
            yield fill_row(row, outcomes[key])

    def _find_end(self, row: ResultRow) -> int | None:
        """Return the end of a truncated view, UTC nanoseconds; None for the whole view."""
        start_ns = self._truth.onset_ns if row.given_alarm_ns is None else row.given_alarm_ns
        if row.evidence_s is None or start_ns is None:
            return None
        end_ns = start_ns + round(row.evidence_s * SECOND_NS)
        return end_ns if end_ns < self._truth.view_end_ns else None

    def _add_alarm(self, row: ResultRow, run: BaselineRun) -> tuple[ResultRow, str]:
        """Return the row with the alarm passed to the baseline, and the reason if there is no alarm."""
        if row.protocol in ("oracle", "delayed", "evidence"):
            assert self._truth.onset_ns is not None
            alarm_ns = self._truth.onset_ns + round((row.delay_s or 0.0) * SECOND_NS)
            return dataclasses.replace(row, given_alarm_ns=alarm_ns, alarm_source="truth"), ""
        uses_own_detector = row.protocol == "own"
        number = self._batch.own_detector_runs[run.own_detector or ""] if uses_own_detector else self._batch.alarm_run
        assert number is not None
        detector = self._context.runs[number]
        online = self._context.online_alarms
        if not uses_own_detector and self._truth.episode in online:
            row = dataclasses.replace(row, given_alarm_ns=online[self._truth.episode], alarm_source=detector.name)
            return row, f"{detector.name} raised no alarm online"
        outcome = self._detect(detector)
        alarm_ns = outcome.answer.alarm_ns if outcome.answer is not None else None
        reason = "raised no alarm" if outcome.status == "ok" else f"failed ({outcome.status}: {outcome.reason})"
        row = dataclasses.replace(row, given_alarm_ns=alarm_ns, alarm_source=detector.name)
        return row, f"{detector.name} {reason}"

    def _detect(self, detector: BaselineRun) -> RunnerOutcome:
        key = (detector.name, detector.seed)
        if key not in self._detections:
            self._detections[key] = self._answer(detector, _Input())
        return self._detections[key]

    def _answer(self, run: BaselineRun, answer_input: _Input) -> RunnerOutcome:
        model = self._models[run.model(self._batch.fold, self._batch.inner)]
        if model.status != "ok":
            return RunnerOutcome(status=model.status, reason=f"fit: {model.reason}", seconds=0.0)
        original = self._copies.episode
        folder = original if answer_input.end_ns is None else self._copies.until(answer_input.end_ns)
        shared = self._neighbours if folder in self._neighbours else [folder]
        process = method_process(run, [folder], shared, self._context)
        request = AnswerRequest(
            number=next_number(),
            process=process if folder == original else hide_dataset(process, [original]),
            action=ACTIONS[run.task],
            spec=run.spec,
            seed=run.seed,
            episode=folder,
            model=model.blob,
            alarm_ns=answer_input.alarm_ns,
            alarm_location=answer_input.alarm_location,
        )
        outcome = self._runner.run(request, self._context.settings.limits)
        if outcome.status == "error":
            check_undamaged(Path(original))
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
            class_trained=bool(self._truth.diagnoses & context.training_diagnoses.get(fold, frozenset()))
            if run.task == "rca"
            else None,
            fit_seconds=round(self._models[run.model(fold, self._batch.inner)].seconds, 6),
            code=context.code,
            method_code=run.code,
            libraries=context.libraries,
            truth=self._truth,
        )


def check_undamaged(episode: Path) -> None:
    """Raise DataError if an episode is damaged, so that damage does not count as a method's miss."""
    check_content(episode, episode.name, _method_files(episode))


def _method_files(folder: Path) -> list[str]:
    """Return the paths of an episode's files that methods read, relative to its folder."""
    return [CONTEXT_FILE, *(f"{TELEMETRY}/{path.name}" for path in sorted((folder / TELEMETRY).glob("*.parquet")))]
