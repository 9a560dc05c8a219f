"""Run detectors online over the recordings of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from faultset.evaluators.execution.method_runs import (
    EvaluationStart,
    MethodAnswers,
    MethodRunContext,
    open_checkpoint,
    run_methods,
)
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings
from faultset.evaluators.leaderboards.trained_thresholds import (
    apply_one_rule,
    apply_policies,
    apply_training_thresholds,
    training_policy,
)
from faultset.evaluators.predictions.files import PredictionFile
from faultset.evaluators.predictions.prediction_rows import read_predictions
from faultset.evaluators.recordings.detection_plan import DetectionPlan
from faultset.evaluators.recordings.detector_runs import RecordingFacts
from faultset.evaluators.recordings.predicted_windows import divide_into_windows
from faultset.evaluators.recordings.results import RecordingResults
from faultset.evaluators.recordings.training import open_training_scope
from faultset.evaluators.results.output_folder import DETECTIONS_FILE
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.thresholds import Reference, ThresholdPolicy

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec


def detect_online(
    plan: DetectionPlan,
    detectors: Sequence[BaselineSpec],
    settings: EvaluationSettings,
    run_context: MethodRunContext,
    *,
    files: Sequence[PredictionFile] = (),
) -> RecordingResults:
    """Run detectors over the test windows of all recordings.

    Parameters
    ----------
    plan
        The recordings, and the windows in which detectors learn and are tested.
    detectors
        Detectors that do not need labels.
    run_context
        How methods are run. The checkpoint is kept.
    files
        Prediction files for recordings.

    Raises
    ------
    DataError
        A file is damaged, or nothing is left to learn from.
    """
    facts = _collect_facts(plan)

    def report_start(start: EvaluationStart) -> None:
        if run_context.started is not None:
            run_context.started(replace(start, recordings=len(facts)))

    engine, progress = run_context.engine, run_context.progress
    settings = _limit_to_detection(settings, plan, detectors, files)
    scope = EvaluationScope(source=plan.load_source(progress), settings=settings, chosen_folds=plan.folds)
    with ExitStack() as stack:
        if plan.train is not None:
            scope = stack.enter_context(open_training_scope(plan.train, scope, engine.workers, progress))
        predicted = read_predictions(scope, [divide_into_windows(file, plan) for file in files])
        checkpoint = None
        if run_context.folder is not None:
            codes = {file.name: file.code for file in files}
            checkpoint = open_checkpoint(run_context.folder, scope, detectors, codes, results=DETECTIONS_FILE)
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
    """Apply one threshold rule to all detectors; return their rows, the rule, and policy -> rows by other policies."""
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
    """Return the facts of every recording that is watched."""
    tested = [window for windows in plan.tested.values() for window in windows]
    facts = {}
    for name, recording in plan.recordings.items():
        windows = [window for window in tested if window.recording == name]
        if windows:
            facts[name] = RecordingFacts.of(recording, windows)
    return facts
