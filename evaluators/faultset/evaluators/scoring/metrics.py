"""Metrics and the cases that they are computed on.

A case holds the answers of one method to one question on one episode. A metric has a value for each case, and an
aggregate and a score of guessing for the cases of a table. Built-in and third-party metrics are declared in the same
way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow, amount_of
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.intervals import (
    SHARE,
    Estimate,
    clustered_mean,
    clustered_median,
    clustered_ratio,
    unknown,
)

Unit = Literal["share", "s", "per hour", "per day", "rank", ""]
Episodes = Literal["fault", "no fault", "all"]
CLOSED_FORM = "closed form"
Value = TypeVar("Value")


@dataclass(kw_only=True, eq=False)
class ScoredCase:
    """The answers of one method to one question on one episode, one row for each seed."""

    rows: tuple[ResultRow, ...] = field(repr=False)
    thresholds: tuple[float, ...] | None = None
    """Thresholds of a policy, one for each row; None if the detector sets its thresholds itself."""
    at_own_alarm: ScoredCase | None = None
    """The same question, given the alarm of the method's own detector."""
    by_budget: dict[float, ScoredCase] = field(default_factory=dict, repr=False)
    """Seconds of evidence -> the answers to the same question with at most that much evidence."""
    seen_s: float = math.nan
    """Seconds of the fault that the method had to see to answer correctly; infinite for a miss, NaN if not tried."""
    by_policy: dict[str, ScoredCase] = field(default_factory=dict, repr=False)
    """Threshold policy -> the same answers with the thresholds of the policy."""
    _values: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def truth(self) -> Truth:
        """The truth about the episode."""
        return self.rows[0].truth

    @property
    def at_s(self) -> float:
        """Delay of the alarm or length of the evidence in seconds; -1 if neither applies."""
        return amount_of(self.rows[0].delay_s, self.rows[0].evidence_s)

    def mean(self, compute: Callable[[ResultRow], float]) -> float:
        """Return the mean of a value over the seeds."""
        return float(np.mean([float(compute(row)) for row in self.rows]))

    def value(self, metric: Metric) -> float:
        """Return the value of a metric; aggregates leave out cases with NaN."""
        return self.once(metric, metric.value_of)

    def once(self, key: Any, compute: Callable[[ScoredCase], Value]) -> Value:
        """Return the result of a function of this case, which is called once."""
        if key not in self._values:
            self._values[key] = compute(self)
        return self._values[key]


Aggregate = Callable[["Metric", Sequence[ScoredCase]], Estimate]


def mean(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    """Return the mean over episodes with its interval over clusters."""
    values = [case.value(metric) for case in cases]
    if all(math.isnan(value) for value in values):
        return unknown(metric.unscored)
    return clustered_mean(values, list_clusters(cases), bounds=SHARE if metric.unit == "share" else None)


def median(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    """Return the median over episodes; misses may be infinite."""
    cases = [case for case in cases if not math.isnan(case.value(metric))]
    if not cases:
        return unknown(metric.unscored)
    return clustered_median([case.value(metric) for case in cases], list_clusters(cases))


def ratio(part: Metric, whole: Metric) -> Aggregate:
    """Return an aggregate that divides the sum of one metric by the sum of another."""

    def aggregate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        return clustered_ratio([c.value(part) for c in cases], [c.value(whole) for c in cases], list_clusters(cases))

    return aggregate


def list_clusters(cases: Sequence[ScoredCase]) -> list[Hashable]:
    return [case.truth.cluster for case in cases]


def mean_guess(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    """Return the mean over episodes of the score of guessing; None if unknown."""
    values = _list_guesses(metric, cases)
    return Estimate(value=float(np.mean(values)), n=len(values), method=CLOSED_FORM) if values else None


def median_guess(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    """Return the upper median over episodes of the score of guessing; None if unknown."""
    values = sorted(_list_guesses(metric, cases))
    return Estimate(value=values[len(values) // 2], n=len(values), method=CLOSED_FORM) if values else None


def _list_guesses(metric: Metric, cases: Sequence[ScoredCase]) -> list[float]:
    values = [] if metric.floor is None else [metric.floor(case.truth) for case in cases]
    return [value for value in values if not math.isnan(value)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """A number in the tables of one task.

    By default `compute` scores each answer, and the values are averaged over seeds and then over episodes, with an
    interval over clusters. `of_case` and `aggregate` replace these steps.
    """

    name: str
    """Key in `leaderboard.json` and in frames, for instance `ac1`."""
    title: str
    """Title of the column."""
    unit: Unit = ""
    """"share" for values from 0 to 1, "s", "per hour", "per day", "rank", or nothing."""
    better: Literal["higher", "lower"] = "higher"
    """Whether higher or lower values are better."""
    meaning: str = ""
    """Definition, in one sentence without a full stop."""
    task: str = ""
    """Task: detection, localization or rca."""
    headline: bool = True
    """Whether Markdown, the terminal and comparisons show it; JSON has all metrics."""
    episodes: Episodes = "fault"
    """Episodes that it is computed on."""
    compute: Callable[[ResultRow], float] | None = None
    """Score an answer; NaN leaves the episode out. An answer whose status is not "ok" should get the worst score."""
    floor: Callable[[Truth], float] | None = None
    """Score of guessing on an episode, if known."""
    unscored: str = "no scored episode"
    """Reason to show if every value is NaN."""
    of_case: Callable[[ScoredCase], float] | None = None
    """Score a case; by default the mean of `compute` over its answers."""
    aggregate: Aggregate = mean
    """Combine the cases of one method into the number in the table."""
    guess: Callable[[Metric, Sequence[ScoredCase]], Estimate | None] = mean_guess
    """Return the score of guessing on a table, from one case per episode."""
    shown_second: Literal["", "if known", "if fewer episodes"] = ""
    """When it is shown next to the first metric of a table: if it has values, or fewer episodes than the first."""
    brief: bool = False
    """Whether the terminal leaves out its interval."""
    balanced: bool = False
    """Whether episodes with and without a fault get equal weight."""
    installed: bool = False
    """Whether another distribution declares it."""
    policy: str = ""
    """Threshold policy that it is computed with, if it differs from its table's."""

    def with_policy(self, policy: str) -> Metric:
        """Return the metric with the thresholds of a policy, named like `event_recall[train-quantile(0.995)]`."""
        return replace(
            self,
            name=f"{self.name}[{policy}]",
            title=f"{self.title}, {policy}",
            meaning=f"{self.meaning}; thresholds by the policy {policy}",
            policy=policy,
            headline=False,
            shown_second="",
            brief=True,
        )

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
        """Return the estimate that a table shows for one method, from all of its cases."""
        return self.aggregate(self, [case for case in cases if self.is_for(case.truth)])

    def estimate_guess(self, cases: Sequence[ScoredCase]) -> Estimate | None:
        """Return the score of guessing on the episodes of a table; None if unknown."""
        return self.guess(self, [case for case in cases if self.is_for(case.truth)])


def once_per_case(function: Callable[[ScoredCase], Value]) -> Callable[[ScoredCase], Value]:

    @functools.wraps(function)
    def compute_once(case: ScoredCase) -> Value:
        return case.once(function, function)

    return compute_once


def once_per_row(function: Callable[[ResultRow], Value]) -> Callable[[ResultRow], Value]:
    """Cache a function of a row in the row, as a cached property does."""
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def compute_once(row: ResultRow) -> Value:
        cache = row.__dict__
        if name not in cache:
            cache[name] = function(row)
        return cache[name]

    return compute_once


def fault_seen_s(truth: Truth) -> float:
    """Return the seconds from the onset to the end of the view; NaN without an onset."""
    return math.nan if truth.onset_ns is None else (truth.view_end_ns - truth.onset_ns) / SECOND_NS


BUDGETS_S = (10, 30, 60)
"""Evidence budgets in seconds that have separate columns in tables."""


def limit_evidence(metric: Metric) -> tuple[Metric, ...]:
    """Return one metric per budget in `BUDGETS_S`, for methods that see at most that much of the fault."""
    return tuple(_limit_to(metric, seconds) for seconds in BUDGETS_S)


def _limit_to(metric: Metric, seconds: int) -> Metric:
    def value_of(case: ScoredCase) -> float:
        limited_case = case.by_budget.get(float(seconds))
        return math.nan if limited_case is None else limited_case.value(metric)

    def aggregate(limited: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        if not any(seconds in case.by_budget for case in cases):
            return unknown(limited.unscored)
        # a fault shorter than the budget is seen completely
        values = [case.value(metric if fault_seen_s(case.truth) < seconds else limited) for case in cases]
        return clustered_mean(values, list_clusters(cases))

    return replace(
        metric,
        name=f"{metric.name}_{seconds}s",
        title=f"{metric.title}, {seconds} s",
        meaning=f"{metric.title} if methods see at most {seconds} s of the fault, or {seconds} s after the alarm",
        headline=False,
        shown_second="if known",
        brief=True,
        compute=None,
        of_case=value_of,
        aggregate=aggregate,
        unscored=f"methods were not run with {seconds} s of evidence; add --evidence 10,30,60",
    )
