"""PromQL functions of range vectors: each reduces the samples of a sliding window to one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from faultset.datasets.serve.promql.series import Floats, Ints, SampledSeries

_MAX_CLOSE_INTERVALS = 1.1
"""A window is extrapolated to its border if the nearest sample is closer than this many sampling intervals, otherwise
by half an interval.
"""


@dataclass(frozen=True, kw_only=True)
class SlidingWindows:
    """The windows `(start, end]` of a series, one per step.

    Attributes
    ----------
    first, stop
        [steps] index of the first sample of each window, and of the first sample after the window.
    starts_ms, ends_ms
        [steps] borders.
    """

    series: SampledSeries
    first: Ints
    stop: Ints
    starts_ms: Ints
    ends_ms: Ints

    @classmethod
    def cut(cls, series: SampledSeries, ends_ms: Ints, length_ms: int) -> SlidingWindows:
        """Return the windows of the given length that end at the given times."""
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
    """Return the change of a series over each window, extrapolated to its borders as in Prometheus.

    Parameters
    ----------
    is_counter
        Whether a decrease counts as a restart from 0.
    per_second
        Whether to divide by the length of the window.
    """
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
    """Return the change between the last two samples of each window.

    Parameters
    ----------
    per_second
        Whether to divide by the time between the samples; a decrease then counts as a restart from 0.
    """
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
