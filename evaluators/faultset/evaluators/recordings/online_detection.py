"""Run detectors online over the recordings of a dataset, and store their answers and alarms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import parquet_path, replacing
from faultset.core.output import Progress
from faultset.core.printable import count_text, printable
from faultset.core.times import SECOND_NS, duration_text
from faultset.datasets.dataset import Dataset
from faultset.evaluators.execution.dataset_source import DatasetSource, open_source
from faultset.evaluators.execution.method_runs import EvaluationStart, MethodAnswers, open_checkpoint, run_methods
from faultset.evaluators.execution.scheduling import MethodEngine
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings, build_training_data
from faultset.evaluators.leaderboards.records import Table
from faultset.evaluators.predictions import SCORES, PredictionFile, read_predictions
from faultset.evaluators.recordings.cut_episodes import CutEpisodes
from faultset.evaluators.recordings.detection_plan import DetectionPlan, DetectionWindow
from faultset.evaluators.recordings.detector_runs import DetectorRun, RecordingFacts, group_detector_runs
from faultset.evaluators.recordings.tables import build_recording_tables
from faultset.evaluators.results.rows import ALARMS_FILE, DETECTIONS_FILE, ResultRow, write_rows
from faultset.evaluators.scoring.thresholds import (
    Reference,
    ThresholdPolicy,
    apply_one_rule,
    apply_policies,
    apply_training_thresholds,
    training_policy,
)

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec


ALARMS = pa.schema(
    [
        ("recording", pa.string()),
        ("baseline", pa.string()),
        ("kind", pa.string()),
        ("seed", pa.int64()),
        ("alarm_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("outcome", pa.string()),
        ("incident", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class RecordingResults:
    """The answers of detectors on recordings, with their alarms, tables and files."""

    rows: tuple[ResultRow, ...] = field(repr=False)
    """One answer per detector, seed and tested window."""
    specs: tuple[BaselineSpec, ...] = field(default=(), repr=False)
    """The detectors."""
    location: str
    """Folder or URL of the dataset."""
    windows: Mapping[str, DetectionWindow] = field(repr=False)
    """Episode id -> window."""
    facts: Mapping[str, RecordingFacts] = field(repr=False)
    """Recording -> its watched time and truth."""
    split: str = ""
    """Split of the recordings."""
    threshold_rule: str = Reference().name
    """Threshold policy of the detectors."""
    by_policy: Mapping[str, Sequence[ResultRow]] = field(default_factory=dict, repr=False)
    """Other threshold policy -> the same answers with its thresholds."""
    digest: str = ""
    """SHA-256 of the dataset version's file list."""
    isolation: str = ""
    """How detectors were isolated."""

    @cached_property
    def runs(self) -> dict[str, list[DetectorRun]]:
        """Detector -> its alarms and scores, by recording and seed."""
        return group_detector_runs(self.rows, self.windows, self.facts)

    @property
    def counts_text(self) -> str:
        """The watched time and the incidents in a few words."""
        items = [item for facts in self.facts.values() for item in facts.incidents]
        counted = sum(len(facts.scored_headline) for facts in self.facts.values())
        scored = sum(item.scored for item in items)
        watched_s = sum(facts.watched_ns for facts in self.facts.values()) / SECOND_NS
        return (
            f"{duration_text(watched_s)} watched, {count_text(len(items), 'incident')}: {counted} in headlines, "
            f"{scored - counted} unnoticed by clients, {len(items) - scored} not scored"
        )

    @property
    def summary(self) -> str:
        """The recordings, their references and their split in one sentence."""
        references = sorted({facts.reference_s for facts in self.facts.values()})
        spans = " to ".join(f"{seconds:g}" for seconds in dict.fromkeys((references[0], references[-1])))
        count = count_text(len(self.facts), "recording")
        return f"{count}, {self.counts_text}; references of {spans} s, split {self.split}"

    def tables(self, seed: int) -> list[Table]:
        """Return the tables of detectors; `seed` is for tests that draw sign flips."""
        by_policy = {
            policy: group_detector_runs(rows, self.windows, self.facts) for policy, rows in self.by_policy.items()
        }
        reconstructions = [spec.name for spec in self.specs if getattr(spec, "reconstruction", False)]
        return build_recording_tables(self.runs, seed, self.threshold_rule, by_policy, reconstructions)

    def list_alarm_rows(self) -> Iterable[dict[str, Any]]:
        """Yield the alarms of all detectors with their outcomes; one row without a time for a run without alarms."""
        for name, runs in self.runs.items():
            for run in runs:
                source = {"recording": run.facts.recording, "baseline": name, "kind": run.rows[0].kind}
                source |= {"seed": run.seed}
                for alarm in run.alarms:
                    times = {"alarm_ns": alarm.start_ns, "end_ns": alarm.end_ns}
                    yield {**source, **times, "outcome": alarm.outcome, "incident": alarm.incident}
                if not run.alarms:
                    yield source

    def write(self, folder: Path) -> None:
        """Write all answers and all alarms into a folder of results."""
        write_rows(self.rows, folder / DETECTIONS_FILE)
        with replacing(parquet_path(folder / ALARMS_FILE)) as temporary:
            pq.write_table(pa.Table.from_pylist(list(self.list_alarm_rows()), schema=ALARMS), temporary)


def is_about_recordings(file: PredictionFile, dataset: Dataset) -> bool:
    """Return whether the first row of a file names a recording in its column `episode`."""
    return not file.frame.empty and str(file.frame["episode"].iloc[0]) in dataset.recording_files


def divide_into_windows(file: PredictionFile, plan: DetectionPlan) -> PredictionFile:
    """Convert scores of recordings into scores of their windows; scores outside windows are left out."""
    dataset = f"{plan.dataset.root} version {plan.dataset.version}"
    if file.layout is not SCORES:
        raise DataError(
            f"{printable(file.path)} is about recordings and must have the columns episode, time and score, but has "
            f"{', '.join(map(str, file.frame.columns))}; write a score for each step"
        )
    names = file.frame["episode"].astype(str)
    unknown = sorted({*names} - plan.recordings.keys())
    if unknown:
        raise DataError(
            f"{printable(file.path)} names {printable(unknown[0])}, which is not a recording of {dataset}; remove "
            "these rows"
        )
    return replace(file, frame=pd.concat(_divide_scores(file.frame, names, plan), ignore_index=True))


def _divide_scores(frame: pd.DataFrame, names: pd.Series, plan: DetectionPlan) -> Iterable[pd.DataFrame]:
    by_recording = dict(list(frame.groupby(names, sort=False)))
    yield frame.iloc[:0]
    for episode, window in plan.windows.items():
        rows = by_recording.get(window.recording)
        if rows is not None:
            inside = (rows["time"] > window.start_ns) & (rows["time"] <= window.end_ns)
            yield rows[inside].assign(episode=episode)


@contextmanager
def open_training_scope(
    train: str | Dataset, scope: EvaluationScope, workers: int, progress: Progress | None = None
) -> Iterator[EvaluationScope]:
    """Yield the scope of an evaluation on recordings whose detectors learn from another dataset.

    They learn from the healthy stretches of its recordings, or from its episodes if it has no recordings.
    """
    if isinstance(train, Dataset) and train.recording_files:
        train.check_files(workers)
        source = DetectionPlan.for_training(train).load_source(progress)
        yield _set_training(source, scope)
        return
    with open_source(train, None, workers) as read_source:
        yield _set_training(read_source(), scope)


def _set_training(source: DatasetSource, scope: EvaluationScope) -> EvaluationScope:
    training = build_training_data(source, scope.source)
    settings = replace(scope.settings, split=None, train=f"{training.name} {source.digest}")
    return replace(scope, settings=settings, training=training, chosen_folds=())


def detect_online(
    plan: DetectionPlan,
    detectors: Sequence[BaselineSpec],
    settings: EvaluationSettings,
    engine: MethodEngine,
    *,
    folder: Path | None,
    started: Callable[[EvaluationStart], None] | None,
    progress: Progress | None,
    files: Sequence[PredictionFile] = (),
) -> RecordingResults:
    """Run detectors over the test windows of all recordings.

    `plan`: the recordings, and the windows in which detectors learn and are tested.
    `detectors`: detectors that do not need labels.
    `folder`: folder for the results and their checkpoint, which is kept.
    `files`: prediction files for recordings.
    """
    facts = _collect_facts(plan)

    def report_start(start: EvaluationStart) -> None:
        if started is not None:
            started(replace(start, recordings=len(facts)))

    settings = _limit_to_detection(settings, plan, detectors, files)
    scope = EvaluationScope(source=plan.load_source(progress), settings=settings, chosen_folds=plan.folds)
    with ExitStack() as stack:
        if plan.train is not None:
            scope = stack.enter_context(open_training_scope(plan.train, scope, engine.workers, progress))
        predicted = read_predictions(scope, [divide_into_windows(file, plan) for file in files])
        checkpoint = None
        if folder is not None:
            codes = {file.name: file.code for file in files}
            checkpoint = open_checkpoint(folder, scope, detectors, codes, results=DETECTIONS_FILE)
            stack.enter_context(checkpoint)
        answers = run_methods(scope, detectors, engine, checkpoint=checkpoint, started=report_start, progress=progress)
        for error in answers.damage.values():
            raise error
        answers.steps.finish()
    rows, rule, by_policy = _apply_thresholds(answers, predicted, settings.policies)
    return RecordingResults(
        rows=tuple(row for row in rows if row.protocol == "detected"),
        specs=answers.specs,
        location=str(plan.dataset.root),
        windows=plan.windows,
        facts=facts,
        split=scope.split,
        threshold_rule=rule,
        by_policy=by_policy,
        digest=scope.source.digest,
        isolation=answers.isolation,
    )


def _apply_thresholds(
    answers: MethodAnswers, predicted: Sequence[ResultRow], policies: Sequence[ThresholdPolicy]
) -> tuple[Sequence[ResultRow], str, Mapping[str, Sequence[ResultRow]]]:
    """Apply one threshold rule to all detectors; return their rows, the rule, and the rows by other policies."""
    rows = list(answers.rows)
    undecided = {spec.name for spec in answers.specs if not spec.own_threshold}
    if undecided:
        rows = apply_training_thresholds(rows, undecided, training_policy(policies))
    judged, own_rows, rule = apply_one_rule([*rows, *predicted], policies)
    others = [policy for policy in policies if policy.needs_training and policy.name != rule]
    own = {Reference().name: [row for of_detector in own_rows.values() for row in of_detector]} if own_rows else {}
    return judged, rule, {**apply_policies(judged, others), **own}


def _limit_to_detection(
    settings: EvaluationSettings,
    plan: DetectionPlan,
    detectors: Sequence[BaselineSpec],
    files: Sequence[PredictionFile],
) -> EvaluationSettings:
    # alarms for localizers need no second policy
    policies = settings.policies if "detection" in settings.tasks else ()
    return replace(
        settings,
        tasks=("detection",),
        protocols=("detected",),
        split=plan.split,
        delays=(),
        evidence=(),
        policies=policies,
        calibrate=any(policy.needs_training for policy in policies)
        or any(file.sets_threshold_in_training for file in files)
        or not all(spec.own_threshold for spec in detectors),
    )


def _collect_facts(plan: DetectionPlan) -> dict[str, RecordingFacts]:
    tested = [window for windows in plan.tested.values() for window in windows]
    facts = {}
    for name, recording in plan.recordings.items():
        windows = [window for window in tested if window.recording == name]
        if windows:
            facts[name] = RecordingFacts.of(recording, windows)
    return facts


def list_online_alarms(
    cuts: CutEpisodes, recordings: RecordingResults, choose_detector: Callable[[str], str]
) -> dict[str, int | None]:
    """Return when a detector that ran online over the recordings raised an alarm in each episode.

    In an episode with an incident, the alarm is the first one in the incident.

    `choose_detector`: episode -> name of the detector; of several seeds the first is used.

    Alarm of each episode in UTC nanoseconds, or None; episodes outside of watched time are left out.
    """
    alarms: dict[str, int | None] = {}
    for episode, (recording, cut) in cuts.cuts.items():
        runs = recordings.runs.get(choose_detector(episode), ())
        run = next((run for run in runs if run.facts.recording == recording), None)
        first_ns = cut.reference_end_ns if cut.incident is None else cut.incident.start_ns
        if run is None or not any(start <= first_ns < end for start, end in run.facts.watched):
            continue
        alarms[episode] = next(
            (
                alarm.start_ns
                for alarm in run.alarms
                if first_ns <= alarm.start_ns < cut.end_ns
                and (cut.incident is None or alarm.incident == cut.incident.incident)
            ),
            None,
        )
    return alarms
