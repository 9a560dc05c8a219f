"""Every answer scored once: facts per method and episode, from which tables, reports and comparisons are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from faultset.evaluators.leaderboards.curves import times_to_be_right
from faultset.evaluators.leaderboards.detection_facts import DetectionFacts, detection_facts
from faultset.evaluators.leaderboards.diagnosis import DiagnosisFacts, diagnosis_facts
from faultset.evaluators.leaderboards.localization import LocalizationFacts, localization_facts
from faultset.evaluators.leaderboards.trained_thresholds import ModelKey, by_one_rule, thresholds_of
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scorers.registry import registered_scorers
from faultset.evaluators.scoring.thresholds import Reference, ThresholdPolicy

KIND_ORDER = ("named", "method", "own", "agent", "external", "rule", "control")


class Setting(NamedTuple):
    """What methods of one table have in common."""

    task: str
    protocol: str


Facts = TypeVar("Facts", DetectionFacts, LocalizationFacts, DiagnosisFacts)
RowsOfSetting = Mapping[str, Mapping[str, Sequence[ResultRow]]]
"""Baseline -> episode -> rows, one for each seed."""


@dataclass(frozen=True, kw_only=True)
class EpisodeScores:
    """The facts of every method on every tested episode."""

    truths: Mapping[str, Truth]
    kinds: Mapping[str, str]
    """Baseline -> kind."""
    rows: Mapping[Setting, RowsOfSetting]
    detections: Mapping[str, Mapping[str, DetectionFacts]]
    """Baseline -> episode."""
    detections_by_policy: Mapping[str, Mapping[str, Mapping[str, DetectionFacts]]]
    """Other threshold policy -> baseline -> episode."""
    judged: Sequence[ResultRow] = field(repr=False)
    """All rows, with the alarms that are scored."""
    threshold_rule: str
    """What sets the thresholds behind `detections`."""
    thresholds: Mapping[str, Mapping[ModelKey, float]]
    """Threshold policy -> detector -> threshold."""
    localizations: Mapping[str, Mapping[str, Mapping[str, LocalizationFacts]]]
    """Protocol -> baseline -> episode."""
    diagnoses: Mapping[str, Mapping[str, Mapping[str, DiagnosisFacts]]]
    """Protocol -> baseline -> episode."""
    abstentions: Mapping[Setting, Mapping[str, Mapping[str, float]]]
    """Baseline -> no-fault episode -> share of seeds that rightly named nothing."""
    scorers: tuple[Metric, ...] = ()
    """Metrics that are computed from single answers."""
    times_to_be_right: Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """Task and protocol -> baseline -> episode -> seconds after the onset, where `evaluate --evidence` was chosen."""

    def correct(self, setting: Setting) -> dict[str, dict[str, float]]:
        """Return baseline -> episode -> how right it was, by the measure that methods are compared with."""
        if setting.task == "detection":
            return {name: {e: one.correct for e, one in found.items()} for name, found in self.detections.items()}
        if setting.task == "localization":
            located = self.localizations.get(setting.protocol, {})
            return {name: {e: one.ac1 for e, one in found.items()} for name, found in located.items()}
        diagnosed = self.diagnoses.get(setting.protocol, {})
        return {name: {e: one.joint for e, one in found.items()} for name, found in diagnosed.items()}

    def spread(self, setting: Setting, baseline: str, episodes: Iterable[str]) -> float | None:
        """Return the standard deviation over seeds of the same measure; None for a single seed."""
        value = _MEASURES[setting.task]
        seeds: dict[int, list[float]] = defaultdict(list)
        found = self.rows[setting][baseline]
        for episode in episodes:
            if len(found.get(episode, ())) < 2:
                return None
            for row in found[episode]:
                seeds[row.seed].append(value(row))
        return float(np.std([np.mean(values) for values in seeds.values()], ddof=1)) if len(seeds) > 1 else None

    def scorers_of(self, task: str, *, headline: bool = False) -> tuple[Metric, ...]:
        """Return the scorers of a task, or those of them that are shown where space is short."""
        return tuple(s for s in self.scorers if s.task == task and (s.headline or not headline))

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Sort methods first, controls last, by name within a kind."""
        return sorted(names, key=lambda name: (kind_rank(self.kinds[name]), name))

    def is_control(self, name: str) -> bool:
        """Whether a method ignores the evidence or looks at one trivial sign of it."""
        return self.kinds[name] == "control"


def kind_rank(kind: str) -> int:
    """Return the place of a kind of method in lists."""
    return KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER)


def score_episodes(
    rows: Sequence[ResultRow],
    policies: Sequence[ThresholdPolicy] = (),
    scorers: Sequence[Metric] | None = None,
    *,
    one_rule: bool = True,
) -> EpisodeScores:
    """Score every answer about a tested episode.

    A localizer's answers count on fault episodes whose causes are candidates, a diagnoser's where level and type are
    known and, if it learns from labels, where it was given any; on no-fault episodes it only counts whether anything
    was named.

    Parameters
    ----------
    policies
        Threshold policies other than `reference` by which detections are scored as well.
    scorers
        Metrics that are computed from single answers; by default all that are installed.
    one_rule
        Set the thresholds of all detectors by one rule; see `by_one_rule`. Otherwise each keeps its own.
    """
    by_own: Mapping[str, Sequence[ResultRow]] = {}
    rule = Reference().name
    if one_rule:
        rows, by_own, rule = by_one_rule(rows, policies)
    by: dict[Setting, dict[str, dict[str, list[ResultRow]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in sorted(rows, key=lambda row: row.key):
        if row.protocol not in ("calibration", "delayed", "evidence", "detected_evidence"):
            by[Setting(row.task, row.protocol)][row.baseline][row.episode].append(row)
    thresholds = thresholds_of(rows, policies)
    detectors = by.get(Setting("detection", "detected"), {})
    detections_by_policy = {
        name: _by_policy(detectors, found) for name, found in thresholds.items() if found and name != rule
    }
    if by_own:
        detections_by_policy[Reference().name] = _each(_by_episode(by_own), detection_facts, lambda _: True)
    return EpisodeScores(
        truths={row.episode: row.truth for row in rows if row.protocol != "calibration"},
        kinds={row.baseline: row.kind for row in rows},
        rows=by,
        detections=_each(detectors, detection_facts, lambda _: True),
        detections_by_policy=detections_by_policy,
        judged=rows,
        threshold_rule=rule,
        thresholds=thresholds,
        localizations={
            setting.protocol: _each(found, localization_facts, lambda row: bool(row.truth.causes))
            for setting, found in by.items()
            if setting.task == "localization"
        },
        diagnoses={
            setting.protocol: _each(found, diagnosis_facts, lambda row: bool(row.truth.diagnoses) and _could_learn(row))
            for setting, found in by.items()
            if setting.task == "rca"
        },
        abstentions={
            setting: {name: _abstentions(episodes) for name, episodes in found.items()}
            for setting, found in by.items()
            if setting.task != "detection"
        },
        scorers=registered_scorers() if scorers is None else tuple(scorers),
        times_to_be_right=times_to_be_right(rows),
    )


def _each(
    found: RowsOfSetting, make: Callable[[Sequence[ResultRow]], Facts], counts: Callable[[ResultRow], bool]
) -> dict[str, dict[str, Facts]]:
    return {
        name: {episode: make(rows) for episode, rows in episodes.items() if counts(rows[0])}
        for name, episodes in found.items()
    }


def _could_learn(row: ResultRow) -> bool:
    """Whether a training episode of the fold has a label, where the method learns from labels."""
    return "labels" not in row.needs or row.majority_label is not None


def _by_episode(found: Mapping[str, Sequence[ResultRow]]) -> RowsOfSetting:
    episodes: dict[str, dict[str, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
    for name, rows in found.items():
        for row in sorted(rows, key=lambda row: row.key):
            episodes[name][row.episode].append(row)
    return episodes


def _by_policy(found: RowsOfSetting, thresholds: Mapping[ModelKey, float]) -> dict[str, dict[str, DetectionFacts]]:
    """Score detectors with the thresholds of a policy; those that have none are left out."""
    result: dict[str, dict[str, DetectionFacts]] = {}
    for name, episodes in found.items():
        own = {e: [thresholds.get((name, row.seed, row.fold), np.nan) for row in rows] for e, rows in episodes.items()}
        if all(np.isfinite(values).all() for values in own.values()):
            result[name] = {episode: detection_facts(rows, own[episode]) for episode, rows in episodes.items()}
    return result


def _abstentions(episodes: Mapping[str, Sequence[ResultRow]]) -> dict[str, float]:
    return {
        episode: float(np.mean([_names_nothing(row) for row in rows]))
        for episode, rows in episodes.items()
        if not rows[0].truth.faulty
    }


def _names_nothing(row: ResultRow) -> bool:
    if row.status == "no_alarm":
        return True
    if row.status != "ok":
        return False
    return not row.ranking and not row.answer.get("system_level") and not row.answer.get("fault_type")


_MEASURES: Mapping[str, Callable[[ResultRow], float]] = {
    "detection": lambda row: detection_facts([row]).correct,
    "localization": lambda row: localization_facts([row]).ac1,
    "rca": lambda row: diagnosis_facts([row]).joint,
}


def measure_of(task: str) -> Callable[[ResultRow], float]:
    """Return how right one answer is, by the measure that methods are compared with."""
    return _MEASURES[task]
