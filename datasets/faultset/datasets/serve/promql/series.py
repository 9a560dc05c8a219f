"""Series of raw samples, and their selection by label matchers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from faultset.core.errors import UsageError

Labels = tuple[tuple[str, str], ...]
"""Pairs of name and value, sorted by name; the metric's name is the label `__name__`."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NAME = "__name__"
NEVER_MS = np.iinfo(np.int64).max
_STALE_INTERVALS = 2.5
"""Scrape intervals without a sample after which a series counts as ended. Prometheus ends it at the next scrape; the
longer time allows a scrape to be missed or late.
"""


class QueryError(UsageError):
    """A query that cannot be answered.

    Parameters
    ----------
    kind
        `bad_data` for an invalid query, `execution` for a valid one that fails.
    """

    def __init__(self, message: str, kind: str = "bad_data"):
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, kw_only=True)
class SampledSeries:
    """The samples of a series in time order.

    Attributes
    ----------
    times_ms
        [n] milliseconds since 1970.
    values
        [n] samples.
    stale_ms
        [n] time at which a sample stops being the current value if no newer sample follows.
    """

    labels: Labels
    times_ms: Ints
    values: Floats
    stale_ms: Ints

    def until(self, time_ms: int) -> SampledSeries:
        """Return the samples up to and including a time."""
        end = int(np.searchsorted(self.times_ms, time_ms, side="right"))
        if end == len(self.times_ms):
            return self
        return SampledSeries(
            labels=self.labels, times_ms=self.times_ms[:end], values=self.values[:end], stale_ms=self.stale_ms[:end]
        )

    def has_samples(self, start_ms: int, end_ms: int) -> bool:
        """Return whether there is a sample from `start_ms` to `end_ms`, both included."""
        first = int(np.searchsorted(self.times_ms, start_ms))
        return first < len(self.times_ms) and bool(self.times_ms[first] <= end_ms)


def build_series(
    labels: Mapping[str, str], times_ms: Ints, values: Floats, interval_s: float | None = None
) -> SampledSeries:
    """Return a series; samples may be unsorted.

    Parameters
    ----------
    labels
        All labels, `__name__` included; empty values are dropped.
    times_ms
        [n] milliseconds since 1970; of several samples at one time, the last is used.
    values
        [n] samples.
    interval_s
        Scrape interval in seconds; a series without samples for 2.5 intervals counts as ended. None if it is unknown.
    """
    order = np.argsort(times_ms, kind="stable")
    times_ms, values = times_ms[order], values[order]
    is_last = np.append(times_ms[1:] != times_ms[:-1], True) if len(times_ms) else np.zeros(0, bool)
    times_ms, values = times_ms[is_last], values[is_last]
    stale_ms = np.full(len(times_ms), NEVER_MS)
    if interval_s is not None and len(times_ms):
        ends_ms = times_ms + round(_STALE_INTERVALS * 1e3 * interval_s)
        is_gap = np.append(times_ms[1:] > ends_ms[:-1], True)
        stale_ms[is_gap] = ends_ms[is_gap]
    pairs = tuple(sorted((name, value) for name, value in labels.items() if value))
    return SampledSeries(labels=pairs, times_ms=times_ms, values=values, stale_ms=stale_ms)


@dataclass(frozen=True)
class LabelMatcher:
    """A condition on one label; an absent label has the value "".

    Attributes
    ----------
    sign
        `=`, `!=`, `=~` or `!~`; regular expressions match the whole value.
    """

    name: str
    sign: str
    value: str

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        try:
            return re.compile(self.value, re.DOTALL)
        except re.error as error:
            raise QueryError(
                f'the regular expression "{self.value}" for label {self.name} is invalid ({error}); correct it'
            ) from None

    def matches(self, value: str) -> bool:
        """Return whether a value of the label satisfies the condition."""
        match self.sign:
            case "=":
                return value == self.value
            case "!=":
                return value != self.value
            case "=~":
                return self._pattern.fullmatch(value) is not None
            case _:
                return self._pattern.fullmatch(value) is None


class SeriesSet:
    """All series of an episode.

    Attributes
    ----------
    series
        The series, sorted by their labels.
    """

    def __init__(self, series: Iterable[SampledSeries]) -> None:
        self.series = sorted(series, key=lambda item: item.labels)
        self._by_name: dict[str, list[SampledSeries]] = {}
        for item in self.series:
            self._by_name.setdefault(dict(item.labels).get(NAME, ""), []).append(item)

    def select(self, matchers: Sequence[LabelMatcher], now_ms: int = NEVER_MS) -> list[SampledSeries]:
        """Return the series that satisfy all matchers, with their samples up to `now_ms`."""
        names = [matcher for matcher in matchers if matcher.name == NAME]
        others = [matcher for matcher in matchers if matcher.name != NAME]
        selected = []
        for name, group in self._by_name.items():
            if all(matcher.matches(name) for matcher in names):
                selected += [item for item in group if _satisfies(item.labels, others)]
        return [visible for item in selected if len((visible := item.until(now_ms)).times_ms)]


def _satisfies(labels: Labels, matchers: Sequence[LabelMatcher]) -> bool:
    values = dict(labels)
    return all(matcher.matches(values.get(matcher.name, "")) for matcher in matchers)
