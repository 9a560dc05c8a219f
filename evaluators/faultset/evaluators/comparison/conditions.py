"""Conditions on a comparison, such as `ac@1 drops by 0.05 for baro`, for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from faultset.core.errors import UsageError, unknown_name
from faultset.evaluators.comparison.pairing import Comparison, PairedEntry, PairedTable

GRAMMAR = "METRIC drops|rises [by X] [for METHOD]"
_CONDITION = re.compile(r"(\S+)\s+(drops|rises)(?:\s+by\s+(\S+))?(?:\s+for\s+(\S+))?", re.IGNORECASE)
_ROUNDING_ERROR = 1e-9
"""Smaller differences are rounding errors."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """An unwanted change of a metric."""

    metric: str
    direction: Literal["drops", "rises"]
    min_change: float = 0.0
    """Smaller differences are accepted."""
    method: str | None = None
    """The method to check; None for all."""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition such as `ac@1 drops by 0.05 for baro`."""
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f'the condition "{text}" must have the form {GRAMMAR}; write for instance "ac@1 drops by 0.05"'
            )
        metric, direction, amount, method = match.groups()
        try:
            min_change = float(amount or 0)
        except ValueError:
            min_change = -1.0
        if not 0 <= min_change < float("inf"):
            raise UsageError(
                f'the amount "{amount}" in "{text}" must be a number of at least 0; write for instance 0.05'
            )
        return cls(
            metric=metric.lower().replace("@", "").replace("-", "_"),
            direction="drops" if direction.lower() == "drops" else "rises",
            min_change=min_change,
            method=method,
        )

    def holds_for(self, difference: float) -> bool:
        """Return whether a difference, new minus old, meets the condition; an unknown difference does not."""
        change = -difference if self.direction == "drops" else difference
        return change > _ROUNDING_ERROR and change >= self.min_change - _ROUNDING_ERROR


def find_violations(
    comparison: Comparison, conditions: Iterable[Condition], *, significance: float | None = None
) -> list[str]:
    """Return a sentence for every method and table that meets a condition.

    `significance`: consider only differences with a smaller p, Holm-corrected over the methods of a table. Only the
    first metric of a table is tested.
    """
    return [text for condition in conditions for text in _find_violations(comparison, condition, significance)]


def _find_violations(comparison: Comparison, condition: Condition, significance: float | None) -> Iterator[str]:
    tables = [table for table in comparison.tables if condition.metric in _list_metrics(table)]
    if not tables:
        names = dict.fromkeys(name for table in comparison.tables for name in _list_metrics(table))
        raise unknown_name("metric of the comparison", condition.metric, names)
    methods = dict.fromkeys(entry.baseline for table in tables for entry in table.entries)
    if condition.method is not None and condition.method not in methods:
        raise unknown_name("method of both evaluations", condition.method, methods)
    if significance is not None and all(table.measures[0].name != condition.metric for table in tables):
        tested = sorted({table.measures[0].name for table in comparison.tables})
        raise UsageError(
            f"--significance needs a tested metric, but {condition.metric} is not; choose from {', '.join(tested)}"
        )
    for table in tables:
        if significance is not None and table.measures[0].name != condition.metric:
            continue
        for entry in table.entries:
            if condition.method in (None, entry.baseline) and _holds(condition, entry, significance):
                yield _describe_violation(condition, table, entry)


def _list_metrics(table: PairedTable) -> tuple[str, ...]:
    return tuple(measure.name for measure in table.measures)


def _holds(condition: Condition, entry: PairedEntry, significance: float | None) -> bool:
    if significance is not None and not entry.adjusted_p < significance:
        return False
    return condition.holds_for(entry.differences[condition.metric].value)


def _describe_violation(condition: Condition, table: PairedTable, entry: PairedEntry) -> str:
    title = next(measure.title for measure in table.measures if measure.name == condition.metric)
    old, new = entry.old[condition.metric], entry.new[condition.metric]
    verb = "dropped" if condition.direction == "drops" else "rose"
    return f"{title} of {entry.baseline} {verb} by {abs(new - old):.3g}, from {old:.3g} to {new:.3g} ({table.title})"
