"""Series of raw samples, their selection by label matchers, and PromQL functions of range vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """A query that cannot be answered; `kind` is `bad_data` if it is invalid, or `execution` if it fails."""

    def __init__(self, message: str, kind: str = "bad_data"):
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, kw_only=True)
class SampledSeries:
    """The samples of a series in time order.

    `stale_ms` is the time at which a sample stops being the current value if no newer sample follows.
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
    """Return a series from unsorted samples; of several samples at one time, the last is used.

    Empty labels are dropped. A series without samples for 2.5 scrape intervals counts as ended, if the interval is
    known.
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

    The sign is `=`, `!=`, `=~` or `!~`; regular expressions match the whole value.
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
    """All series of an episode, sorted by their labels."""

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


_MAX_CLOSE_INTERVALS = 1.1
"""A window is extrapolated to its border if the nearest sample is closer than this many sampling intervals, otherwise
by half an interval.
"""


@dataclass(frozen=True, kw_only=True)
class SlidingWindows:
    """The windows `(start, end]` of a series, one per step, each with the samples from index `first` to before
    `stop`.
    """

    series: SampledSeries
    first: Ints
    stop: Ints
    starts_ms: Ints
    ends_ms: Ints

    @classmethod
    def cut(cls, series: SampledSeries, ends_ms: Ints, length_ms: int) -> SlidingWindows:
        starts_ms = ends_ms - length_ms
        return cls(
            series=series,
            first=np.searchsorted(series.times_ms, starts_ms, side="right"),
            stop=np.searchsorted(series.times_ms, ends_ms, side="right"),
            starts_ms=starts_ms,
            ends_ms=ends_ms,
        )

    @property
    def counts(self) -> Ints:
        """[steps] samples in each window."""
        return self.stop - self.first

    def reduce(self, function: Callable[[Floats], float]) -> Floats:
        """Return `function` of the samples of each window; NaN for windows without samples."""
        values = self.series.values
        results = np.full(len(self.first), np.nan)
        for step in np.flatnonzero(self.counts):
            results[step] = function(values[self.first[step] : self.stop[step]])
        return results


WindowFunction = Callable[[SlidingWindows], Floats]


def extrapolated_change(windows: SlidingWindows, *, is_counter: bool, per_second: bool) -> Floats:
    """Return the change of a series over each window, extrapolated to its borders as in Prometheus."""
    times_ms, values = windows.series.times_ms, windows.series.values
    results = np.full(len(windows.first), np.nan)
    steps = np.flatnonzero(windows.counts >= 2)
    if not len(steps):
        return results
    first, last = windows.first[steps], windows.stop[steps] - 1
    change = values[last] - values[first]
    if is_counter:
        falls = np.where(values[1:] < values[:-1], values[:-1], 0.0)
        lost = np.concatenate([[0.0], np.cumsum(falls)])
        change = change + lost[last] - lost[first]
    sampled_s = (times_ms[last] - times_ms[first]) / 1e3
    average_s = sampled_s / (last - first)
    to_start_s = (times_ms[first] - windows.starts_ms[steps]) / 1e3
    to_end_s = (windows.ends_ms[steps] - times_ms[last]) / 1e3
    to_start_s = np.where(to_start_s >= _MAX_CLOSE_INTERVALS * average_s, average_s / 2, to_start_s)
    to_end_s = np.where(to_end_s >= _MAX_CLOSE_INTERVALS * average_s, average_s / 2, to_end_s)
    if is_counter:
        grows = (change > 0) & (values[first] >= 0)
        to_zero_s = np.divide(sampled_s * values[first], change, out=np.full(len(change), np.inf), where=grows)
        to_start_s = np.minimum(to_start_s, to_zero_s)
    change = change * (sampled_s + to_start_s + to_end_s) / sampled_s
    results[steps] = change / ((windows.ends_ms - windows.starts_ms)[steps] / 1e3) if per_second else change
    return results


def last_change(windows: SlidingWindows, *, per_second: bool) -> Floats:
    """Return the change between the last two samples of each window; per second, a decrease is a restart from 0."""
    times_ms, values = windows.series.times_ms, windows.series.values
    results = np.full(len(windows.first), np.nan)
    steps = np.flatnonzero(windows.counts >= 2)
    last = windows.stop[steps] - 1
    change = values[last] - values[last - 1]
    if per_second:
        change = np.where(change < 0, values[last], change) / ((times_ms[last] - times_ms[last - 1]) / 1e3)
    results[steps] = change
    return results


def slope(windows: SlidingWindows) -> Floats:
    """Return the least-squares slope per second of each window."""
    times_ms, values = windows.series.times_ms, windows.series.values
    results = np.full(len(windows.first), np.nan)
    for step in np.flatnonzero(windows.counts >= 2):
        inside = slice(windows.first[step], windows.stop[step])
        seconds = (times_ms[inside] - times_ms[inside][0]) / 1e3
        centred = seconds - seconds.mean()
        results[step] = (centred @ (values[inside] - values[inside].mean())) / (centred @ centred)
    return results


def quantile(values: Floats, level: float) -> float:
    """Return a quantile with linear interpolation; infinite for a level outside 0 to 1."""
    if np.isnan(level) or not len(values):
        return np.nan
    if not 0 <= level <= 1:
        return -np.inf if level < 0 else np.inf
    return float(np.quantile(values, level))


def _changes(values: Floats) -> float:
    both_nan = np.isnan(values[1:]) & np.isnan(values[:-1])
    return float(np.count_nonzero((values[1:] != values[:-1]) & ~both_nan))


WINDOW_FUNCTIONS: dict[str, WindowFunction] = {
    "rate": lambda windows: extrapolated_change(windows, is_counter=True, per_second=True),
    "increase": lambda windows: extrapolated_change(windows, is_counter=True, per_second=False),
    "delta": lambda windows: extrapolated_change(windows, is_counter=False, per_second=False),
    "irate": lambda windows: last_change(windows, per_second=True),
    "idelta": lambda windows: last_change(windows, per_second=False),
    "deriv": slope,
    "avg_over_time": lambda windows: windows.reduce(lambda values: float(np.mean(values))),
    "sum_over_time": lambda windows: windows.reduce(lambda values: float(np.sum(values))),
    "min_over_time": lambda windows: windows.reduce(lambda values: float(np.fmin.reduce(values))),
    "max_over_time": lambda windows: windows.reduce(lambda values: float(np.fmax.reduce(values))),
    "count_over_time": lambda windows: windows.reduce(lambda values: float(len(values))),
    "last_over_time": lambda windows: windows.reduce(lambda values: float(values[-1])),
    "present_over_time": lambda windows: windows.reduce(lambda values: 1.0),
    "stddev_over_time": lambda windows: windows.reduce(lambda values: float(np.std(values))),
    "stdvar_over_time": lambda windows: windows.reduce(lambda values: float(np.var(values))),
    "changes": lambda windows: windows.reduce(_changes),
    "resets": lambda windows: windows.reduce(lambda values: float(np.count_nonzero(values[1:] < values[:-1]))),
}
"""Function by its name in PromQL; NaN where the window has too few samples."""
MIN_SAMPLES: dict[str, int] = dict.fromkeys(("rate", "increase", "delta", "irate", "idelta", "deriv"), 2)
"""Minimum number of samples in a window; functions that are not listed need one."""
