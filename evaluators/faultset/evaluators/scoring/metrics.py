"""Metrics: a declaration each, and the cases that they are computed on.

Scoring turns result rows into one table of cases: all answers of one method to one question about one episode. A metric
has a value for each case, an aggregate over the cases of a table, and what guessing scores there. Built-in metrics and
those of other distributions are declared in the same way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from faultset.evaluators.results.rows import ResultRow, amount_of
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.statistics.intervals import (
    SHARE,
    Estimate,
    clustered_mean,
    clustered_median,
    clustered_ratio,
    unknown,
)

Unit = Literal["share", "s", "per hour", "rank", ""]
Episodes = Literal["fault", "no fault", "all"]
CLOSED_FORM = "closed form"
Value = TypeVar("Value")


@dataclass(kw_only=True, eq=False)
class ScoredCase:
    """The answers of one method to one question about one episode, one row for each seed."""

    rows: tuple[ResultRow, ...] = field(repr=False)
    thresholds: tuple[float, ...] | None = None
    """Thresholds of a policy, one for each row, that decide a detector's alarms; None for its own."""
    own: ScoredCase | None = None
    """The same question, given the alarm of the method's own trigger."""
    seen_s: float = math.nan
    """Seconds after the onset up to which the episode had to be seen; infinite for a miss, NaN if not tried."""
    by_policy: dict[str, ScoredCase] = field(default_factory=dict, repr=False)
    """Threshold policy -> the same answers with its thresholds."""
    _values: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def truth(self) -> Truth:
        """What is true of the episode."""
        return self.rows[0].truth

    @property
    def at_s(self) -> float:
        """Delay of the alarm or length of the evidence in seconds; -1 without one."""
        return amount_of(self.rows[0].delay_s, self.rows[0].evidence_s)

    def mean(self, compute: Callable[[ResultRow], float]) -> float:
        """Return the mean of a value over the seeds."""
        return float(np.mean([float(compute(row)) for row in self.rows]))

    def value(self, metric: Metric) -> float:
        """Return the value of a metric; NaN leaves the case out."""
        return self.once(metric, metric.value_of)

    def once(self, key: Any, make: Callable[[ScoredCase], Value]) -> Value:
        """Return what a function makes of this case; it is called once."""
        if key not in self._values:
            self._values[key] = make(self)
        return self._values[key]


Aggregate = Callable[["Metric", Sequence[ScoredCase]], Estimate]


def mean(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    """Return the mean over episodes with its interval over clusters."""
    values = [case.value(metric) for case in cases]
    if all(math.isnan(value) for value in values):
        return unknown(metric.unscored)
    return clustered_mean(values, clusters_of(cases), bounds=SHARE if metric.unit == "share" else None)


def median(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    """Return the median over episodes, in which a miss may be infinite."""
    cases = [case for case in cases if not math.isnan(case.value(metric))]
    if not cases:
        return unknown(metric.unscored)
    return clustered_median([case.value(metric) for case in cases], clusters_of(cases))


def ratio(part: Metric, whole: Metric) -> Aggregate:
    """Return an aggregate: the sum of one metric over the sum of another."""

    def aggregate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        return clustered_ratio([c.value(part) for c in cases], [c.value(whole) for c in cases], clusters_of(cases))

    return aggregate


def clusters_of(cases: Sequence[ScoredCase]) -> list[Hashable]:
    """Return the cluster of each case."""
    return [case.truth.cluster for case in cases]


def mean_guess(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    """Return the mean of what guessing scores on each episode; None if that is unknown."""
    values = _guesses(metric, cases)
    return Estimate(value=float(np.mean(values)), n=len(values), method=CLOSED_FORM) if values else None


def median_guess(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    """Return the upper median of what guessing scores on each episode."""
    values = sorted(_guesses(metric, cases))
    return Estimate(value=values[len(values) // 2], n=len(values), method=CLOSED_FORM) if values else None


def _guesses(metric: Metric, cases: Sequence[ScoredCase]) -> list[float]:
    values = [] if metric.floor is None else [metric.floor(case.truth) for case in cases]
    return [value for value in values if not math.isnan(value)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """A number in the tables of one task.

    `compute` gives a value for each answer, which is averaged over the seeds of a method and then over episodes, with
    an interval from what clusters differ by. Built-in metrics replace steps of that: the value of a case, or its
    aggregate over the cases of a table.
    """

    name: str
    """Key in `leaderboard.json` and in frames, for instance `ac1`."""
    title: str
    """Head of the column."""
    unit: Unit = ""
    """"share" for values from 0 to 1, "s", "per hour", "rank", or nothing."""
    better: Literal["higher", "lower"] = "higher"
    """Which values are the better ones."""
    meaning: str = ""
    """What is counted, in one sentence without a full stop."""
    task: str = ""
    """Task whose tables it belongs to: detection, localization or rca."""
    headline: bool = True
    """Whether it is shown where space is short: in Markdown, on the terminal, in comparisons."""
    episodes: Episodes = "fault"
    """Episodes of a table that it is computed on."""
    compute: Callable[[ResultRow], float] | None = None
    """From an answer with its truth to a value; NaN leaves the episode out. An answer whose status is not "ok" should
    score like the worst answer."""
    floor: Callable[[Truth], float] | None = None
    """What guessing scores on an episode, where that is known."""
    unscored: str = "no scored episode"
    """Reason that is shown where every value is NaN."""
    of_case: Callable[[ScoredCase], float] | None = None
    """From all answers of a case to a value; by default the mean of `compute`."""
    aggregate: Aggregate = mean
    """From the cases of one method in a table to the number that is shown."""
    guess: Callable[[Metric, Sequence[ScoredCase]], Estimate | None] = mean_guess
    """From the cases of a table, one for each episode, to what guessing scores there."""
    beside_first: Literal["", "if known", "if it differs"] = ""
    """Shown beside the first metric of a table: where it has values, or where it was computed on fewer episodes."""
    balanced: bool = False
    """Whether episodes with and without a fault weigh the same, whatever their numbers."""
    installed: bool = False
    """Whether another distribution has declared it."""

    def value_of(self, case: ScoredCase) -> float:
        """Compute the value of a case."""
        if self.of_case is not None:
            return self.of_case(case)
        assert self.compute is not None
        return case.mean(self.compute)

    def is_for(self, truth: Truth) -> bool:
        """Return whether it is computed on an episode."""
        return self.episodes == "all" or truth.faulty == (self.episodes == "fault")

    def estimate(self, cases: Sequence[ScoredCase]) -> Estimate:
        """Return the number that a table shows of the cases of one method."""
        return self.aggregate(self, [case for case in cases if self.is_for(case.truth)])

    def estimate_guess(self, cases: Sequence[ScoredCase]) -> Estimate | None:
        """Return what guessing scores on the episodes of a table; None if that is unknown."""
        return self.guess(self, [case for case in cases if self.is_for(case.truth)])


def once_per_case(function: Callable[[ScoredCase], Value]) -> Callable[[ScoredCase], Value]:
    """Let a function of a case compute once for each case."""

    @functools.wraps(function)
    def remember(case: ScoredCase) -> Value:
        return case.once(function, function)

    return remember


def once_per_row(function: Callable[[ResultRow], Value]) -> Callable[[ResultRow], Value]:
    """Let a function of a row compute once for each row, which keeps the result as a cached property does."""
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def remember(row: ResultRow) -> Value:
        kept = row.__dict__
        if name not in kept:
            kept[name] = function(row)
        return kept[name]

    return remember
