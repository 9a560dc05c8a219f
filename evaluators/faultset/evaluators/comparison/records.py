"""The records of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from faultset.evaluators.leaderboards.records import GIVEN_ALARMS
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.statistics.comparison import PairedDifference
from faultset.evaluators.statistics.intervals import Estimate


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference in data, code or settings between two runs."""

    what: str
    old: str
    new: str
    category: str
    """`data`, `code` (of methods or scoring), or `setting` (of the user)."""


@dataclass(frozen=True, kw_only=True)
class PairedEntry:
    """A method in both runs, on the episodes that it answered in both."""

    baseline: str
    kind: str
    episodes: int
    clusters: int
    old: Mapping[str, float]
    """Metric -> mean in the old run."""
    new: Mapping[str, float]
    differences: Mapping[str, Estimate]
    """Metric -> new minus old, with the interval over clusters."""
    paired: PairedDifference
    """Tests of the first metric."""
    adjusted_p: float
    """Holm-corrected over the methods of the table."""
    better: tuple[str, ...]
    """Episodes in which the first metric rose."""
    worse: tuple[str, ...]
    same_answers: int
    """Number of episodes in which every seed gave the same answer in both runs."""
    old_seconds: float
    """Median processor time of an answer."""
    new_seconds: float

    @property
    def changed(self) -> bool:
        """Whether the score of any episode changed."""
        return bool(self.better or self.worse)


@dataclass(frozen=True, kw_only=True)
class PairedTable:
    """Methods with the same input in both runs, largest change first."""

    task: str
    protocol: str
    app: str
    measures: tuple[Metric, ...]
    entries: tuple[PairedEntry, ...]

    @property
    def title(self) -> str:
        """Task, input and application."""
        name = "root cause" if self.task == "rca" else self.task
        alarms = {**GIVEN_ALARMS, "own": "the method's own detector"}
        parts = [name] if self.task == "detection" else [name, f"given: {alarms[self.protocol]}"]
        return " · ".join([*parts, self.app])


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a run."""

    folder: str
    dataset: str
    version: str
    digest: str
    split: str
    code: str
    seeds: tuple[int, ...]
    episodes: int
    methods: int
    answers: int
    failures: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All differences between two runs."""

    old: RunFacts
    """Facts about the earlier run."""
    new: RunFacts
    """Facts about the later run."""
    changes: tuple[Change, ...]
    """Other differences, such as code and settings."""
    tables: tuple[PairedTable, ...]
    """A table for each task, protocol and application."""
    episodes: int
    """Number of compared episodes."""
    only_old_methods: tuple[str, ...]
    """Methods of the earlier run only."""
    only_new_methods: tuple[str, ...]
    """Methods of the later run only."""
    only_old_episodes: tuple[str, ...]
    """Episodes of the earlier run only."""
    only_new_episodes: tuple[str, ...]
    """Episodes of the later run only."""
    other_truth: tuple[str, ...]
    """Common episodes whose labels differ; they are not compared."""
    labels: Mapping[str, str]
    """Episode -> fault and targets."""
