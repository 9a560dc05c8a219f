"""Rows turned into facts about episodes, each once, before any table is made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from faultset.evaluators.leaderboards.detection import correctness
from faultset.evaluators.leaderboards.detection_facts import Heard, heard
from faultset.evaluators.leaderboards.diagnosis import Diagnosed, diagnosed
from faultset.evaluators.leaderboards.localization import Located, located
from faultset.evaluators.leaderboards.trained_thresholds import Who, thresholds_of
from faultset.evaluators.results.rows import ResultRow, Truth
from faultset.evaluators.scoring.thresholds import ThresholdPolicy

Asked = tuple[str, str]
"""Task and protocol."""
Fact = TypeVar("Fact", Heard, Located, Diagnosed)
Of = Mapping[str, Mapping[str, Fact]]
"""Baseline -> episode -> fact."""


@dataclass(frozen=True, kw_only=True)
class ScoredRows:
    """Everything that tables are made of."""

    truths: Mapping[str, Truth]
    rows: Mapping[Asked, Mapping[str, Mapping[str, Sequence[ResultRow]]]]
    """(task, protocol) -> baseline -> episode -> rows, one for each seed."""
    heard: Mapping[str, Mapping[str, Heard]]
    by_policy: Mapping[str, Mapping[str, Mapping[str, Heard]]]
    """Threshold policy -> baseline -> episode."""
    thresholds: Mapping[str, Mapping[Who, float]]
    located: Mapping[str, Mapping[str, Mapping[str, Located]]]
    """Protocol -> baseline -> episode."""
    diagnosed: Mapping[str, Mapping[str, Mapping[str, Diagnosed]]]
    """Protocol -> baseline -> episode."""
    calm: Mapping[Asked, Mapping[str, Mapping[str, float]]]
    """(task, protocol) -> baseline -> no-fault episode -> share of seeds that blamed nobody."""

    def right(self, asked: Asked) -> dict[str, dict[str, float]]:
        """Baseline -> episode -> how right it was, by the measure that methods are compared with."""
        task, protocol = asked
        if task == "detection":
            return {name: correctness(found) for name, found in self.heard.items()}
        if task == "localization":
            return {name: {e: one.ac1 for e, one in found.items()} for name, found in self.located[protocol].items()}
        return {name: {e: one.joint for e, one in found.items()} for name, found in self.diagnosed[protocol].items()}

    def spread(self, asked: Asked, baseline: str, episodes: Iterable[str]) -> float | None:
        """Standard deviation over seeds of the same measure; None for a single seed."""
        value = _VALUES[asked[0]]
        seeds: dict[int, list[float]] = defaultdict(list)
        found = self.rows[asked][baseline]
        for episode in episodes:
            if len(found.get(episode, ())) < 2:
                return None
            for row in found[episode]:
                seeds[row.seed].append(value(row))
        return float(np.std([np.mean(values) for values in seeds.values()], ddof=1)) if len(seeds) > 1 else None


def scored(rows: Sequence[ResultRow], policies: Sequence[ThresholdPolicy]) -> ScoredRows:
    """Compute facts from rows.

    A localizer's answers count on fault episodes whose causes are candidates, a diagnoser's where level and type are
    known; on no-fault episodes it only counts whether anybody was blamed.
    """
    by: dict[Asked, dict[str, dict[str, list[ResultRow]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in sorted(rows, key=lambda row: row.key):
        if row.protocol not in ("calibration", "delayed"):
            by[row.task, row.protocol][row.baseline][row.episode].append(row)
    thresholds = thresholds_of(rows, policies)
    detectors = by.get(("detection", "detected"), {})
    return ScoredRows(
        truths={row.episode: row.truth for row in rows},
        rows=by,
        heard=_each(detectors, heard, lambda _: True),
        by_policy={name: _by_policy(detectors, found) for name, found in thresholds.items() if found},
        thresholds=thresholds,
        located={
            protocol: _each(found, located, lambda truth: bool(truth.causes))
            for (task, protocol), found in by.items()
            if task == "localization"
        },
        diagnosed={
            protocol: _each(found, diagnosed, lambda truth: bool(truth.system_level and truth.fault_type))
            for (task, protocol), found in by.items()
            if task == "rca"
        },
        calm={
            asked: {name: _silent(episodes) for name, episodes in found.items()}
            for asked, found in by.items()
            if asked[0] != "detection"
        },
    )


def _each(
    found: Mapping[str, Mapping[str, Sequence[ResultRow]]],
    make: Callable[[Sequence[ResultRow]], Fact],
    counts: Callable[[Truth], bool],
) -> dict[str, dict[str, Fact]]:
    return {
        name: {episode: make(rows) for episode, rows in episodes.items() if counts(rows[0].truth)}
        for name, episodes in found.items()
    }


def _by_policy(
    found: Mapping[str, Mapping[str, Sequence[ResultRow]]], thresholds: Mapping[Who, float]
) -> dict[str, dict[str, Heard]]:
    """Detectors with the thresholds of a policy; those that have none are left out."""
    result: dict[str, dict[str, Heard]] = {}
    for name, episodes in found.items():
        told = {e: [thresholds.get((name, row.seed, row.fold), np.nan) for row in rows] for e, rows in episodes.items()}
        if all(np.isfinite(values).all() for values in told.values()):
            result[name] = {episode: heard(rows, told[episode]) for episode, rows in episodes.items()}
    return result


def _silent(episodes: Mapping[str, Sequence[ResultRow]]) -> dict[str, float]:
    return {
        episode: float(np.mean([_blames_nobody(row) for row in rows]))
        for episode, rows in episodes.items()
        if not rows[0].truth.faulty
    }


def _blames_nobody(row: ResultRow) -> bool:
    if row.status == "no_alarm":
        return True
    if row.status != "ok":
        return False
    return not row.ranking and not row.answer.get("system_level") and not row.answer.get("fault_type")


_VALUES: Mapping[str, Callable[[ResultRow], float]] = {
    "detection": lambda row: correctness({row.episode: heard([row])})[row.episode],
    "localization": lambda row: located([row]).ac1,
    "rca": lambda row: diagnosed([row]).joint,
}
