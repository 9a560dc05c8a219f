"""What a comparison of two runs holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from faultset.evaluators.leaderboards.records import GIVEN_ALARMS
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.statistics.comparison import PairedDifference
from faultset.evaluators.statistics.intervals import Estimate


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something in which the two runs differ."""

    what: str
    old: str
    new: str
    weight: str
    """"data": other data was scored; "code": other code answered or scored; "setting": another choice of the user."""


@dataclass(frozen=True, kw_only=True)
class PairedEntry:
    """One method in both runs, on the episodes that it answered in both."""

    baseline: str
    kind: str
    episodes: int
    clusters: int
    old: Mapping[str, float]
    """Mean of each measure in the old run."""
    new: Mapping[str, float]
    differences: Mapping[str, Estimate]
    """New minus old of each measure, with the clustered interval."""
    paired: PairedDifference
    """Exact tests of the first measure."""
    adjusted_p: float
    """Holm-corrected over the methods of the table."""
    better: tuple[str, ...]
    """Episodes in which the first measure rose."""
    worse: tuple[str, ...]
    same_answers: int
    """Episodes in which every seed gave the very same answer."""
    old_seconds: float
    """Median processor time of an answer."""
    new_seconds: float

    @property
    def changed(self) -> bool:
        """Whether any episode was scored otherwise."""
        return bool(self.better or self.worse)


@dataclass(frozen=True, kw_only=True)
class PairedTable:
    """Methods that were given the same in both runs, those that changed most first."""

    task: str
    protocol: str
    app: str
    measures: tuple[Metric, ...]
    entries: tuple[PairedEntry, ...]

    @property
    def title(self) -> str:
        """Say in a few words what the table is about."""
        name = "root cause" if self.task == "rca" else self.task
        given = {**GIVEN_ALARMS, "own": "the method's own trigger"}
        parts = [name] if self.task == "detection" else [name, f"given: {given[self.protocol]}"]
        return " · ".join([*parts, self.app])


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run says about itself."""

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
    """Everything about two runs."""

    old: RunFacts
    """What is known of the earlier run."""
    new: RunFacts
    """What is known of the later run."""
    changes: tuple[Change, ...]
    """What else differs between the runs, such as code and settings."""
    tables: tuple[PairedTable, ...]
    """The same methods on the same episodes, a table for each task and protocol."""
    episodes: int
    """Episodes that were compared."""
    only_old_methods: tuple[str, ...]
    """Methods of the earlier run alone."""
    only_new_methods: tuple[str, ...]
    """Methods of the later run alone."""
    only_old_episodes: tuple[str, ...]
    """Episodes of the earlier run alone."""
    only_new_episodes: tuple[str, ...]
    """Episodes of the later run alone."""
    other_truth: tuple[str, ...]
    """Episodes of both whose labels differ; they are compared nowhere."""
    labels: Mapping[str, str]
    """Episode -> fault and targets, for people."""
