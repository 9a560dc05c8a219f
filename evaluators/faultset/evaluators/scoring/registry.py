"""The metrics of each task: built-in ones, and scorers of other distributions."""

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
    """What the answers to one task are scored by."""

    metrics: tuple[Metric, ...]
    """In the order of columns; tables are ranked by the first."""
    right: Metric
    """How right one answer is; methods are compared by it."""
    compared: tuple[Metric, ...]
    """Metrics of comparisons."""
    poses: Callable[[Truth], bool]
    """Whether a fault episode poses the task."""


TASK_METRICS: dict[str, TaskMetrics] = {
    "detection": TaskMetrics(
        metrics=DETECTION_METRICS, right=CORRECT, compared=COMPARED, poses=lambda truth: truth.onset_ns is not None
    ),
    "localization": TaskMetrics(
        metrics=LOCALIZATION_METRICS, right=AC1, compared=(AC1, AVG5), poses=lambda truth: bool(truth.causes)
    ),
    "rca": TaskMetrics(
        metrics=DIAGNOSIS_METRICS, right=JOINT, compared=(JOINT, PARTS), poses=lambda truth: bool(truth.diagnoses)
    ),
}


def right_of(row: ResultRow) -> float:
    """Return how right one answer is, by the metric that methods are compared by."""
    return ScoredCase(rows=(row,)).value(TASK_METRICS[row.task].right)


def registered_scorers() -> tuple[Metric, ...]:
    """Return every scorer that is installed and keeps the contract, by name; a warning names any other."""
    return tuple(load_plugins(GROUP, _declared).values())


def _declared(name: str, loaded: object) -> Metric:
    return check_declaration(loaded, name)


def find_scorer(name: str) -> Metric:
    """Return one scorer of another distribution by its name."""
    return load_plugin(GROUP, name, kind="scorer", accept=_declared)


def guard(scorers: Iterable[Metric]) -> tuple[Metric, ...]:
    """Mark scorers of other distributions; a value is missing where one fails, which is logged once."""
    return tuple(dataclasses.replace(scorer, installed=True, of_case=_guarded(scorer)) for scorer in scorers)


def _guarded(scorer: Metric) -> Callable[[ScoredCase], float]:
    def value_of(case: ScoredCase) -> float:
        try:
            return scorer.value_of(case)
        except Exception as error:  # code of a third party
            if not reported:
                reported.append(case)
                _log.warning(
                    'the scorer "%s" failed on episode %s (%s: %s); its value is missing there',
                    scorer.name,
                    case.truth.episode,
                    type(error).__name__,
                    error,
                )
            return math.nan

    reported: list[ScoredCase] = []
    return value_of


def check_declaration(scorer: object, name: str | None = None) -> Metric:
    """Return the scorer if its declaration can be used.

    Parameters
    ----------
    name
        Name of its entry point.

    Raises
    ------
    UsageError
        It is no `Metric` with `compute`, has the name of a built-in metric, or a field has an unknown value.
    """
    label = name or getattr(scorer, "name", repr(scorer))
    if not isinstance(scorer, Metric) or scorer.compute is None:
        raise UsageError(f'the scorer "{label}" must be a faultset.evaluators.Metric with compute; found {scorer!r}')
    if name is not None and scorer.name != name:
        raise UsageError(f'the entry point "{name}" in {GROUP} names the scorer "{scorer.name}"; use one name for both')
    if re.fullmatch(r"[a-z][a-z0-9_]*", scorer.name) is None:
        raise UsageError(f'"{scorer.name}" is not a name for a scorer; use lower-case letters, digits and underscores')
    for field, value, allowed in (
        ("task", scorer.task, TASKS),
        ("unit", scorer.unit, get_args(Unit)),
        ("better", scorer.better, ("higher", "lower")),
        ("episodes", scorer.episodes, get_args(Episodes)),
    ):
        if value not in allowed:
            choices = ", ".join(repr(one) for one in allowed)
            raise UsageError(f'the scorer "{scorer.name}" has {field}={value!r}; choose from {choices}')
    if not scorer.title or not scorer.meaning:
        raise UsageError(f'the scorer "{scorer.name}" has no title or no meaning; readers need both')
    if any(scorer.name == metric.name and scorer is not metric for metric in TASK_METRICS[scorer.task].metrics):
        raise UsageError(f'"{scorer.name}" is a built-in metric of {scorer.task}; choose another name')
    return scorer
