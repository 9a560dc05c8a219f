"""What an evaluation does, and on which baselines and episodes it can be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from faultset.core.errors import DataError, UsageError
from faultset.datasets.training.folds import CROSS, Fold, folds_of_split
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.runners.outcomes import RunLimits
from faultset.evaluators.results.rows import PROTOCOLS, TASKS

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

ALARM_DETECTOR = "trace-errors"
"""Chosen by `benchmarks/alarm_sources.py`: it finds most faults of those that alarm in less than 5 % of the episodes
without one."""
ALARM_DETECTOR_WITHOUT_SPANS = "spot"
"""Reads metrics, which every dataset has."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What an evaluation does."""

    tasks: tuple[str, ...] = TASKS
    protocols: tuple[str, ...] = PROTOCOLS
    split: str | None = None
    """Published split or scheme, see `folds_of_split`; None scores every episode in two folds."""
    train: str = ""
    """Name, version and digest of another dataset that methods learn from; empty without one."""
    seed: int = 0
    limits: RunLimits = field(default_factory=RunLimits)
    alarm_detector: str = ALARM_DETECTOR_WITHOUT_SPANS
    alarm_without_spans: str = ""
    """The detector in episodes without spans, where it is another one."""
    delays: tuple[float, ...] = ()
    """Seconds after the onset at which localizers are also given an alarm."""
    evidence: tuple[float, ...] = ()
    """Seconds after the onset, or the alarm, at which the views of methods also end."""
    calibrate: bool = False
    """Run detectors on training episodes too, from which threshold policies other than `reference` are made."""

    def for_rows(self) -> dict[str, object]:
        """Return what an answer can depend on, as it enters the settings hash."""
        return {
            "alarm_detector": self.alarm_detector,
            "timeout_s": self.limits.timeout_s,
            "memory_bytes": self.limits.memory_bytes,
            "split": self.split or CROSS,
            "calibration": "out of fold",
            **({"alarm_without_spans": self.alarm_without_spans} if self.alarm_without_spans else {}),
            **({"train": self.train} if self.train else {}),
        }

    @property
    def alarm_detectors(self) -> tuple[str, ...]:
        """All detectors whose alarms localizers are given."""
        return (self.alarm_detector, *([self.alarm_without_spans] if self.alarm_without_spans else []))

    def alarm_of(self, episode: str, source: DatasetSource) -> str:
        """Return the detector whose alarm localizers are given in an episode."""
        return (episode in source.without_spans and self.alarm_without_spans) or self.alarm_detector


def default_detector(episode: str, source: DatasetSource) -> str:
    """Return the detector whose alarm localizers are given in an episode unless another one is chosen."""
    return ALARM_DETECTOR_WITHOUT_SPANS if episode in source.without_spans else ALARM_DETECTOR


def with_default_alarm(settings: EvaluationSettings, source: DatasetSource) -> EvaluationSettings:
    """Choose the detectors whose alarms localizers are given, by what each episode has."""
    if len(source.without_spans) == len(source.truths):
        return replace(settings, alarm_detector=ALARM_DETECTOR_WITHOUT_SPANS)
    other = ALARM_DETECTOR_WITHOUT_SPANS if source.without_spans else ""
    return replace(settings, alarm_detector=ALARM_DETECTOR, alarm_without_spans=other)


def check_choice(source: DatasetSource, specs: Sequence[BaselineSpec], settings: EvaluationSettings) -> None:
    """Raise what `make_plan` would raise about baselines, tasks and split, before anything is started."""
    choose_answerable(source, specs, settings)
    folds_of(source, settings)


def folds_of(source: DatasetSource, settings: EvaluationSettings) -> list[Fold]:
    """Return the folds that the settings ask for."""
    return folds_of_split(settings.split, source.splits, source.truths)


def choose_answerable(
    source: DatasetSource, specs: Sequence[BaselineSpec], settings: EvaluationSettings
) -> list[BaselineSpec]:
    """Leave out baselines of tasks that were not chosen or that this dataset cannot pose.

    Raises
    ------
    UsageError
        No baseline is for any of the chosen tasks.
    DataError
        The dataset poses none of the tasks that are left.
    """
    chosen = [spec for spec in specs if spec.task in settings.tasks]
    if not chosen:
        raise UsageError(
            f'none of the chosen baselines is for {" or ".join(settings.tasks)}; see "faultset list baselines"'
        )
    faulty = [truth for truth in source.truths if truth.faulty]
    impossible: dict[str, str] = {}
    if not faulty:
        impossible = dict.fromkeys(("localization", "rca"), "has no fault episodes")
    else:
        if not any(truth.causes for truth in faulty):
            impossible["localization"] = "names no candidate as root cause"
        if not any(truth.diagnoses for truth in faulty):
            impossible["rca"] = "does not say of which level and type its faults are"
    possible = [spec for spec in chosen if spec.task not in impossible]
    if not possible:
        task = chosen[0].task
        raise DataError(
            f"{source.url or source.folder} version {source.version} {impossible[task]}, so there is nothing to "
            f"{'localize' if task == 'localization' else 'diagnose'}; use --tasks detection, or other data"
        )
    return possible
