"""Turn validated prediction files into result rows, fold by fold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from faultset.baselines.api.contract import CONSECUTIVE, Detection, Diagnosis, Ranking
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import printable
from faultset.datasets.training.folds import Fold
from faultset.evaluators.execution.plan import majority_labels
from faultset.evaluators.execution.runners.answers import check_detection, check_diagnosis, check_ranking
from faultset.evaluators.execution.settings import EvaluationScope
from faultset.evaluators.predictions.files import ALARMS, RANKINGS, SCORES, PredictionFile, check_predictions
from faultset.evaluators.results.provenance import code_version, library_versions, settings_hash
from faultset.evaluators.results.rows import Protocol, ResultRow
from faultset.evaluators.results.stored_answers import StoredAnswer
from faultset.evaluators.scoring.thresholds import HealthyScores, TrainQuantile

if TYPE_CHECKING:
    import pandas as pd

    from faultset.evaluators.execution.runners.messages import CheckedAnswer
    from faultset.evaluators.results.truth import Truth

KIND = "external"
"""Kind of an external model."""


def read_predictions(scope: EvaluationScope, files: Sequence[PredictionFile]) -> list[ResultRow]:
    """Return the rows of prediction files: test episodes of each fold, and calibration rows of training episodes.

    Raises
    ------
    UsageError
        A file is for a task or protocol that was not chosen, or the split tests an episode more than once.
    DataError
        A file does not match the dataset, or has no training scores to set a threshold.
    """
    if not files:
        return []
    datasets_text = " or ".join(f"{source.name} version {source.version}" for source in scope.sources)
    scope.check_single_tests("a prediction file has")
    rows: list[ResultRow] = []
    for file in files:
        if file.layout.task not in scope.settings.tasks:
            raise UsageError(
                f"{printable(file.path)} is for the task {file.layout.task}, which is not among --tasks "
                f"{','.join(scope.settings.tasks)}; add the task, or leave the file out"
            )
        check_predictions(file, scope.truths, datasets_text)
        rows += _FileRows(scope, file).rows()
    return rows


class _FileRows:
    """The rows of one file."""

    def __init__(self, scope: EvaluationScope, file: PredictionFile) -> None:
        self._scope, self._file = scope, file
        self._truths, self._settings = scope.truths, scope.settings
        # group by text, because categories may include episodes without rows
        groups = file.frame.groupby(file.frame["episode"].astype(str), sort=False)
        self._answers: dict[str, pd.DataFrame] = {str(episode): rows for episode, rows in groups}
        frame, task = file.frame, file.layout.task
        stated = str(frame["protocol"].iloc[0]) if "protocol" in frame else None
        self._protocol: Protocol = cast("Protocol", stated or ("detected" if task == "detection" else "oracle"))
        if task != "detection" and self._protocol not in self._settings.protocols:
            raise UsageError(
                f"{printable(file.path)} is for the protocol {self._protocol}, which this evaluation leaves out; "
                "choose --protocol both"
            )

    def rows(self) -> Iterator[ResultRow]:
        labels = majority_labels(self._scope) if self._file.layout.task == "rca" else {}
        for fold in self._scope.folds:
            trained = {episode: self._answers[episode] for episode in fold.healthy_train if episode in self._answers}
            samples = (
                {episode: self._sort_samples(rows, episode) for episode, rows in trained.items()}
                if self._file.layout is SCORES
                else {}
            )
            threshold = self._set_threshold(fold, samples)
            for episode in fold.test:
                if self._is_tested(self._truths[episode]):
                    yield self._build_row(fold, episode, self._protocol, threshold, labels.get(fold.number))
            for episode in samples if self._settings.calibrate else ():
                yield self._build_row(fold, episode, "calibration", threshold, None)

    def _is_tested(self, truth: Truth) -> bool:
        """Return whether baselines are tested on the episode; the protocol "oracle" needs a known onset."""
        return self._protocol == "detected" or (truth.faulty and truth.onset_ns is not None)

    def _set_threshold(self, fold: Fold, samples: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> float | None:
        """Set the threshold of a fold from its healthy training scores; None if the file has thresholds."""
        if not self._file.sets_threshold_in_training:
            return None
        scores = [scores for _, scores in samples.values() if len(scores)]
        if not scores:
            raise DataError(
                f"{printable(self._file.path)} must have scores of training episodes without a fault, from which the "
                f'threshold is set, but has none (split "{self._scope.split}", fold {fold.number}); add them, or a '
                "column threshold with values fixed before the test"
            )
        return TrainQuantile().threshold([HealthyScores(scores=values, hours=0.0) for values in scores])

    def _sort_samples(self, rows: pd.DataFrame, episode: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted times after the reference, where detectors are scored, and their scores."""
        times, scores = rows["time"].to_numpy(dtype=np.int64), rows["score"].to_numpy(dtype=float)
        order = np.argsort(times, kind="stable")
        order = order[times[order] > self._truths[episode].reference_end_ns]
        return times[order], scores[order]

    def _build_row(
        self,
        fold: Fold,
        episode: str,
        protocol: Protocol,
        threshold: float | None,
        majority: tuple[str, str] | None,
    ) -> ResultRow:
        file, truth = self._file, self._truths[episode]
        rows = self._answers.get(episode)
        answer = None if rows is None else self._check_answer(rows, truth, threshold)
        return ResultRow(
            baseline=file.name,
            kind=KIND,
            needs=("threshold",) if file.sets_threshold_in_training else (),
            settings=settings_hash({"baseline": file.name, **self._settings.for_rows()}),
            dataset=self._scope.source.name,
            version=self._scope.source.version,
            split=self._scope.split,
            fold=fold.number,
            task=file.layout.task,
            protocol=protocol,
            seed=0,
            status="missing" if answer is None else "ok",
            reason="" if answer is not None else f"{file.path.name} has no answer for this episode",
            alarm_ns=None if answer is None else answer.alarm_ns,
            answer=StoredAnswer("{}" if answer is None else answer.text),
            ranking={} if answer is None else answer.ranking,
            majority_label=majority,
            code=code_version(),
            method_code=file.code,
            libraries=library_versions(),
            truth=truth,
        )

    def _check_answer(self, rows: pd.DataFrame, truth: Truth, threshold: float | None) -> CheckedAnswer:
        layout, view = self._file.layout, (truth.view_start_ns, truth.view_end_ns)
        if layout is SCORES:
            times, scores = self._sort_samples(rows, truth.episode)
            limit = float(rows["threshold"].iloc[0]) if threshold is None else threshold
            return check_detection(Detection.from_scores(times, scores, limit, consecutive=CONSECUTIVE), *view)
        if layout is ALARMS:
            return _build_alarm(int(rows["alarm"].iloc[0]))
        if layout is RANKINGS:
            ranked = rows.dropna(subset=["service"])
            scores = dict(zip(ranked["service"].astype(str), ranked["score"].astype(float), strict=True))
            return check_ranking(Ranking(scores=scores), truth.candidates)
        level, kind = (rows[name].astype(object).where(rows[name].notna(), None).iloc[0] for name in ("level", "type"))
        return check_diagnosis(Diagnosis(system_level=level, fault_type=kind))


def _build_alarm(alarm_ns: int) -> CheckedAnswer:
    """Return the answer of a detector that has an alarm but no scores."""
    from faultset.evaluators.execution.runners.messages import CheckedAnswer

    return CheckedAnswer(alarm_ns=None if alarm_ns < 0 else alarm_ns, text=json.dumps({"consecutive": None}))
