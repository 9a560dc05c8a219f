"""The metrics of each task: built-in ones, and scorers from installed packages."""

from __future__ import annotations

import dataclasses
import logging
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import get_args

from faultset.core.errors import UsageError
from faultset.core.plugins import load_plugin, load_plugins
from faultset.evaluators.results.rows import TASKS, ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.detection import COMPARED, CORRECT, DETECTION_METRICS
from faultset.evaluators.scoring.diagnosis import DIAGNOSIS_METRICS, JOINT, PARTS
from faultset.evaluators.scoring.localization import AC1, AVG5, LOCALIZATION_METRICS
from faultset.evaluators.scoring.metrics import Episodes, Metric, ScoredCase, Unit

GROUP = "faultset.scorers"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TaskMetrics:
    """The metrics of a task."""

    metrics: tuple[Metric, ...]
    """All metrics in the order of columns; the first one ranks tables."""
    correctness: Metric
    """Metric that says whether an individual answer is right; used in paired comparisons."""
    compared: tuple[Metric, ...]
    """Metrics that `faultset compare` shows."""
    is_scorable: Callable[[Truth], bool]
    """Whether the task can be scored on a fault episode."""


TASK_METRICS: dict[str, TaskMetrics] = {
    "detection": TaskMetrics(
        metrics=DETECTION_METRICS,
        correctness=CORRECT,
        compared=COMPARED,
        is_scorable=lambda truth: truth.onset_ns is not None,
    ),
    "localization": TaskMetrics(
        metrics=LOCALIZATION_METRICS,
        correctness=AC1,
        compared=(AC1, AVG5),
        is_scorable=lambda truth: bool(truth.causes),
    ),
    "rca": TaskMetrics(
        metrics=DIAGNOSIS_METRICS,
        correctness=JOINT,
        compared=(JOINT, PARTS),
        is_scorable=lambda truth: bool(truth.diagnoses),
    ),
}


def score_correctness(row: ResultRow) -> float:
    """Return the correctness of an answer by the metric that compares methods."""
    return ScoredCase(rows=(row,)).value(TASK_METRICS[row.task].correctness)


def load_scorers() -> tuple[Metric, ...]:
    """Return all valid installed scorers by name; log a warning for each invalid one."""
    return tuple(load_plugins(GROUP, _check_plugin).values())


def _check_plugin(name: str, loaded: object) -> Metric:
    return check_declaration(loaded, name)


def find_scorer(name: str) -> Metric:
    return load_plugin(GROUP, name, kind="scorer", accept=_check_plugin)


def guard(scorers: Iterable[Metric]) -> tuple[Metric, ...]:
    """Wrap installed scorers, so that an exception is logged once and gives NaN."""
    return tuple(dataclasses.replace(scorer, installed=True, of_case=_guard_value(scorer)) for scorer in scorers)


def _guard_value(scorer: Metric) -> Callable[[ScoredCase], float]:
    def value_of(case: ScoredCase) -> float:
        try:
            return scorer.value_of(case)
        except Exception as error:  # code of a third party
            if not reported:
                reported.append(case)
                _log.warning(
                    'the scorer "%s" failed on episode %s (%s: %s); its value there is missing',
                    scorer.name,
                    case.truth.episode,
                    type(error).__name__,
                    error,
                )
            return math.nan

    reported: list[ScoredCase] = []
    return value_of


def check_declaration(scorer: object, name: str | None = None) -> Metric:
    """Return the scorer if its declaration is valid.

    `name`: name of its entry point.
    """
    label = name or getattr(scorer, "name", repr(scorer))
    if not isinstance(scorer, Metric) or scorer.compute is None:
        raise UsageError(f'the scorer "{label}" must be a faultset.evaluators.Metric with compute, got {scorer!r}')
    if name is not None and scorer.name != name:
        raise UsageError(f'the entry point "{name}" in {GROUP} names the scorer "{scorer.name}"; use one name for both')
    if re.fullmatch(r"[a-z][a-z0-9_]*", scorer.name) is None:
        raise UsageError(
            f'a scorer name must consist of lower-case letters, digits and underscores, got "{scorer.name}"'
        )
    for field, value, allowed in (
        ("task", scorer.task, TASKS),
        ("unit", scorer.unit, get_args(Unit)),
        ("better", scorer.better, ("higher", "lower")),
        ("episodes", scorer.episodes, get_args(Episodes)),
    ):
        if value not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise UsageError(f'the scorer "{scorer.name}" has {field}={value!r}; choose from {choices}')
    if not scorer.title or not scorer.meaning:
        raise UsageError(f'the scorer "{scorer.name}" must have a title and a meaning, but one of them is empty')
    if any(scorer.name == metric.name and scorer is not metric for metric in TASK_METRICS[scorer.task].metrics):
        raise UsageError(f'"{scorer.name}" is a built-in metric of {scorer.task}; choose another name')
    return scorer
