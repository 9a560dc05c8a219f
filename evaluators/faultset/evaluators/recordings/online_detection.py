"""Run detectors online over the recordings of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.core.command_line.progress import Progress
from faultset.evaluators.execution.checkpoint import Checkpoint
from faultset.evaluators.execution.method_runs import EvaluationStart, run_methods
from faultset.evaluators.execution.plan import identify_codes
from faultset.evaluators.execution.scheduling import MethodEngine
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from faultset.evaluators.leaderboards.trained_thresholds import (
    apply_one_rule,
    apply_training_thresholds,
    training_policy,
)
from faultset.evaluators.predictions.files import PredictionFile
from faultset.evaluators.predictions.prediction_rows import read_predictions
from faultset.evaluators.recordings.detection_plan import DetectionPlan
from faultset.evaluators.recordings.detector_runs import RecordingFacts
from faultset.evaluators.recordings.predicted_windows import divide_into_windows
from faultset.evaluators.recordings.results import RecordingResults
from faultset.evaluators.recordings.training import train_elsewhere
from faultset.evaluators.results.output_folder import DETECTIONS_FILE
from faultset.evaluators.results.provenance import code_version

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec


def detect_online(
    plan: DetectionPlan,
    detectors: Sequence[BaselineSpec],
    settings: EvaluationSettings,
    engine: MethodEngine,
    *,
    files: Sequence[PredictionFile] = (),
    folder: Path | None = None,
    started: Callable[[EvaluationStart], None] | None = None,
    progress: Progress | None = None,
) -> RecordingResults:
    """Run detectors over the tested stretches of all recordings.

    Parameters
    ----------
    plan
        The recordings, and the windows in which detectors learn and are tested.
    detectors
        Detectors that do not need labels.
    files
        Prediction files about recordings.
    folder
        Folder of the results, for a checkpoint, which remains; None stores nothing.
    started, progress
        See `faultset.evaluators.evaluate`.

    Raises
    ------
    DataError
        A file is damaged, or nothing is left to learn from.
    """
    facts = _collect_facts(plan)

    def report_start(start: EvaluationStart) -> None:
        if started is not None:
            started(replace(start, recordings=len(facts)))

    settings = replace(
        settings,
        tasks=("detection",),
        protocols=("detected",),
        split=plan.split,
        delays=(),
        evidence=(),
        policies=(),
        calibrate=any(file.sets_threshold_in_training for file in files)
        or not all(spec.own_threshold for spec in detectors),
    )
    scope = EvaluationScope(source=plan.load_source(progress), settings=settings, chosen_folds=plan.folds)
    with ExitStack() as stack:
        if plan.train is not None:
            scope = stack.enter_context(train_elsewhere(plan.train, scope, engine.workers, progress))
        predicted = read_predictions(scope, [divide_into_windows(file, plan) for file in files])
        checkpoint = None
        if folder is not None:
            checkpoint = stack.enter_context(_open_checkpoint(folder, scope, detectors, files))
        answers = run_methods(scope, detectors, engine, checkpoint=checkpoint, started=report_start, progress=progress)
        for error in answers.damage.values():
            raise error
        answers.steps.finish()
        rows = list(answers.rows)
        undecided = {spec.name for spec in detectors if not spec.own_threshold}
        if undecided:
            rows = apply_training_thresholds(rows, undecided, training_policy(()))
        judged, _, rule = apply_one_rule([*rows, *predicted], ())
        return RecordingResults(
            rows=tuple(row for row in judged if row.protocol == "detected"),
            specs=answers.specs,
            location=str(plan.dataset.root),
            windows=plan.windows,
            facts=facts,
            split=scope.split,
            threshold_rule=rule,
            digest=scope.source.digest,
            isolation=answers.isolation,
        )


def _open_checkpoint(
    folder: Path, scope: EvaluationScope, detectors: Sequence[BaselineSpec], files: Sequence[PredictionFile]
) -> Checkpoint:
    conditions = {"digest": scope.source.digest, "code": code_version(), "split": scope.split}
    conditions |= {"train": scope.settings.train} if scope.settings.train else {}
    codes = identify_codes(detectors, scope.settings) | {file.name: file.code for file in files}
    return Checkpoint(folder, conditions, codes, results=DETECTIONS_FILE)


def _collect_facts(plan: DetectionPlan) -> dict[str, RecordingFacts]:
    """Return the facts of every recording that is watched."""
    tested = [window for windows in plan.tested.values() for window in windows]
    facts = {}
    for name, recording in plan.recordings.items():
        windows = [window for window in tested if window.recording == name]
        if windows:
            facts[name] = RecordingFacts.of(recording, windows)
    return facts
