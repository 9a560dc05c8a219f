"""From raw metric samples to a wide frame of rates and levels on a regular grid; pure functions.

A sample belongs to the step in which it was taken. A counter's rate belongs to the step of the later of its two
samples: what grew between them, divided by the time between them. A value below the one before is a restart, and
what grew since is the value itself.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.datasets.episodes import SERIES_COLUMNS
from faultset.datasets.errors import UsageError
from faultset.datasets.roles import Catalogue, builtin_catalogue

Array = np.ndarray

_LEVEL, _RATE, _SUM, _COUNT, _SKIP = range(5)
_CUMULATIVE = {"counter": _RATE, "gauge": _LEVEL, "sum": _SUM, "count": _COUNT, "bucket": _SKIP}


@dataclass(frozen=True, kw_only=True)
class Series:
    """Raw samples, ordered by series and time, with what each series is."""

    starts: Array
    """Position of each series' first sample."""
    times_ns: Array
    values: Array
    words: dict[str, list[str | None]]
    """Per series: metric, service, pod, container, labels, kind."""

    @property
    def of_sample(self) -> Array:
        """Series number of every sample."""
        lengths = np.diff(np.append(self.starts, len(self.times_ns)))
        return np.repeat(np.arange(len(self.starts)), lengths)


def series_of(metrics: pa.Table) -> Series:
    """Split a metrics table, in any order, into its series."""
    table = metrics.unify_dictionaries().combine_chunks()
    times = _numbers(table["time"].cast(pa.int64()))
    values = _numbers(table["value"])
    codes: dict[str, Array] = {}
    words: dict[str, list[str | None]] = {}
    for name in (*SERIES_COLUMNS, "kind"):
        codes[name], words[name] = _coded(table[name])
    # The stored order groups the series already; sorting is for tables from elsewhere.
    change = _changes([codes[name] for name in SERIES_COLUMNS])
    if np.any((np.diff(times) < 0) & ~change[1:]) or _repeats(codes, change):
        order = np.lexsort([times, *(codes[name] for name in reversed(SERIES_COLUMNS))])
        times, values = times[order], values[order]
        codes = {name: column[order] for name, column in codes.items()}
        change = _changes([codes[name] for name in SERIES_COLUMNS])
    starts = np.flatnonzero(change)
    return Series(
        starts=starts,
        times_ns=times,
        values=values,
        words={name: [words[name][code] for code in codes[name][starts]] for name in words},
    )


def increases(series: Series) -> tuple[Array, Array]:
    """Return per sample what a counter grew since the sample before and the seconds between; NaN at the first."""
    grown = np.diff(series.values, prepend=np.nan)
    restarted = grown < 0
    grown[restarted] = series.values[restarted]
    seconds = np.diff(series.times_ns, prepend=0) / 1e9
    first = np.zeros(len(grown), dtype=bool)
    first[series.starts] = True
    unusable = first | (seconds <= 0)
    grown[unusable] = np.nan
    seconds[unusable] = np.nan
    return grown, seconds


def wide_frame(
    metrics: pa.Table, start_ns: int, end_ns: int, step_s: float = 1.0, *, catalogue: Catalogue | None = None
) -> pd.DataFrame:
    """Return levels and per-second rates of every (service, metric) on a regular grid over a window.

    Parameters
    ----------
    metrics
        Rows of the metrics table; rows without a service are left out.
    start_ns, end_ns
        Half-open window, UTC nanoseconds; the index holds the start of each step.
    step_s
        Length of a step in seconds.
    catalogue
        Says how several series of a service become one; the built-in one by default.

    Returns
    -------
    DataFrame
        Columns (service, metric), sorted, NaN where a step has no sample. Counters become rates per second and are
        summed over pods, containers and label sets. Gauges are averaged within a step, then combined as the
        catalogue says, by their mean when it does not know them. A histogram `h` becomes `h_mean` (average of
        what was observed in the step), `h_rate` (observations per second) and, when its labels tell errors from
        successes, `h_error_rate`; its buckets stay in the table.
    """
    step_ns = round(step_s * 1e9)
    if step_ns <= 0 or end_ns <= start_ns:
        raise UsageError(f"a wide frame needs a step and a window above zero, not {step_s} s in {end_ns - start_ns} ns")
    steps = math.ceil((end_ns - start_ns) / step_ns)
    index = pd.DatetimeIndex(start_ns + step_ns * np.arange(steps), tz="UTC", name="time").as_unit("ns")
    catalogue = catalogue or builtin_catalogue()
    series = series_of(metrics)
    parts = [_CUMULATIVE.get(kind or "gauge", _LEVEL) for kind in series.words["kind"]]
    grid = _Grid(series, _snapped_steps(series, start_ns, step_ns), steps)
    columns: dict[tuple[str, str], Array] = {}
    columns |= _levels(series, parts, grid, catalogue)
    columns |= _rates(series, parts, grid, catalogue)
    columns |= _histograms(series, parts, grid)
    keys = sorted(columns)
    data = np.stack([columns[key] for key in keys], axis=1) if keys else np.empty((steps, 0))
    return pd.DataFrame(data, index=index, columns=pd.MultiIndex.from_tuples(keys, names=["service", "metric"]))


class _Grid:
    """Sums per series and step."""

    def __init__(self, series: Series, step: Array, steps: int) -> None:
        self._inside = (step >= 0) & (step < steps)
        self._cell = series.of_sample * steps + step
        self._shape = (len(series.starts), steps)

    def total(self, chosen: Array, values: Array) -> tuple[Array, Array]:
        """Return the sum of `values` in every cell of the chosen series, and how many there were."""
        used = self._inside & ~np.isnan(values)
        size = self._shape[0] * self._shape[1]
        cells = self._cell[used]
        sums = np.bincount(cells, weights=values[used], minlength=size).reshape(self._shape)
        counts = np.bincount(cells, minlength=size).reshape(self._shape)
        return sums[chosen], counts[chosen]


def _levels(series: Series, parts: list[int], grid: _Grid, catalogue: Catalogue) -> dict[tuple[str, str], Array]:
    chosen, keys, combine = [], [], []
    for number, part in enumerate(parts):
        service, metric = series.words["service"][number], series.words["metric"][number]
        if part == _LEVEL and service is not None and metric is not None:
            row = catalogue.find(metric)
            chosen.append(number)
            keys.append((service, _column(metric, row.keep_label if row else "", series.words["labels"][number])))
            combine.append(row.combine if row else "mean")
    sums, counts = grid.total(np.asarray(chosen, dtype=int), series.values)
    with np.errstate(invalid="ignore"):
        levels = np.where(counts > 0, sums / counts, np.nan)
    columns = {}
    for key, rows in _groups(keys).items():
        columns[key] = _combined(levels[rows], combine[rows[0]])
    return columns


def _rates(series: Series, parts: list[int], grid: _Grid, catalogue: Catalogue) -> dict[tuple[str, str], Array]:
    chosen, keys = [], []
    for number, part in enumerate(parts):
        service, metric = series.words["service"][number], series.words["metric"][number]
        if part == _RATE and service is not None and metric is not None:
            row = catalogue.find(metric)
            chosen.append(number)
            keys.append((service, _column(metric, row.keep_label if row else "", series.words["labels"][number])))
    rates = _per_second(series, grid, np.asarray(chosen, dtype=int))
    return {key: _combined(rates[rows], "sum") for key, rows in _groups(keys).items()}


def _histograms(series: Series, parts: list[int], grid: _Grid) -> dict[tuple[str, str], Array]:
    totals: dict[tuple[str, str, str], Array] = {}
    for part, name in ((_SUM, "sum"), (_COUNT, "count")):
        chosen, keys, failed = [], [], []
        for number, found in enumerate(parts):
            service, metric = series.words["service"][number], series.words["metric"][number]
            if found == part and service is not None and metric is not None:
                chosen.append(number)
                keys.append((service, metric.removesuffix(f"_{name}")))
                failed.append(_is_error(series.words["labels"][number] or "{}"))
        rates = _per_second(series, grid, np.asarray(chosen, dtype=int))
        for (service, family), rows in _groups(keys).items():
            totals[service, family, name] = _combined(rates[rows], "sum")
            verdicts = [failed[row] for row in rows]
            if part == _COUNT and any(verdict is not None for verdict in verdicts):
                errors = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict]
                seen = np.where(np.isnan(totals[service, family, name]), np.nan, 0.0)
                totals[service, family, "errors"] = np.nansum([seen, _combined(rates[errors], "sum")], axis=0)
                totals[service, family, "errors"][np.isnan(seen)] = np.nan
    columns = {}
    for service, family, name in totals:
        if name == "count":
            rate = totals[service, family, "count"]
            columns[service, f"{family}_rate"] = rate
            if (service, family, "sum") in totals:
                with np.errstate(invalid="ignore", divide="ignore"):
                    mean = totals[service, family, "sum"] / rate
                columns[service, f"{family}_mean"] = np.where(rate > 0, mean, np.nan)
        elif name == "errors":
            columns[service, f"{family}_error_rate"] = totals[service, family, "errors"]
    return columns


def _per_second(series: Series, grid: _Grid, chosen: Array) -> Array:
    grown, seconds = increases(series)
    increase, count = grid.total(chosen, grown)
    elapsed, _ = grid.total(chosen, seconds)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, increase / elapsed, np.nan)


def _combined(rows: Array, how: str) -> Array:
    """Combine the rows of one column step by step; NaN only where every row is."""
    if len(rows) == 1:
        return rows[0]
    if how == "min":
        return np.fmin.reduce(rows, axis=0)
    if how == "max":
        return np.fmax.reduce(rows, axis=0)
    seen = ~np.isnan(rows)
    count = seen.sum(axis=0)
    total = np.where(seen, rows, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count if how == "mean" else total, np.nan)


def _groups(keys: list[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    return groups


def _column(metric: str, keep_label: str, labels: str | None) -> str:
    if not keep_label or not labels:
        return metric
    value = json.loads(labels).get(keep_label)
    return metric if value is None else f'{metric}{{{keep_label}="{value}"}}'


def _is_error(labels: str) -> bool | None:
    """Say whether a label set counts failed requests; None when it does not tell."""
    found = json.loads(labels)
    status = str(found.get("http_response_status_code", found.get("status_code", "")))
    if found.get("error_type"):
        return True
    if status.isdigit():
        return int(status) >= 500
    return False if "error_type" in found else None


def _snapped_steps(series: Series, start_ns: int, step_ns: int) -> Array:
    """Return the step of every sample, free of holes that only jitter makes.

    A series that is sampled once per step, always at nearly the same point of it, keeps that rhythm: when the
    point is at the edge of a step, milliseconds of jitter would else leave one step empty and the next with two.
    """
    position = (series.times_ns - start_ns) / step_ns
    if not len(series.starts):
        return np.zeros(0, dtype=np.int64)
    angle = 2 * np.pi * (position % 1.0)
    lengths = np.diff(np.append(series.starts, len(position)))
    mean = np.add.reduceat(np.exp(1j * angle), series.starts) / lengths
    phase = np.angle(mean) / (2 * np.pi) % 1.0
    steady = np.repeat(np.abs(mean) > 0.8, lengths)
    plain = np.floor(position)
    nominal = np.round(position - np.repeat(phase, lengths))
    # A rhythm at an edge may be numbered from either side; the side where most samples lie decides.
    side = np.round(np.add.reduceat(plain - nominal, series.starts) / lengths)
    step = np.where(steady, nominal + np.repeat(side, lengths), plain).astype(np.int64)
    last = plain.max().astype(np.int64)
    return np.where(plain >= 0, np.clip(step, 0, last), -1)


def _coded(column: pa.ChunkedArray) -> tuple[Array, list[str | None]]:
    """Return a code per row and the words the codes stand for; null is a word."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if not len(column):
        return np.zeros(0, dtype=np.int64), []
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    words = [*array.dictionary.to_pylist(), None]
    codes = array.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64, copy=False), words


def _numbers(column: pa.ChunkedArray) -> Array:
    return np.array(column.to_numpy())


def _changes(codes: list[Array]) -> Array:
    change = np.zeros(len(codes[0]), dtype=bool)
    change[:1] = True
    for column in codes:
        change[1:] |= column[1:] != column[:-1]
    return change


def _repeats(codes: dict[str, Array], change: Array) -> bool:
    """Say whether some series appears in more than one run of rows."""
    starts = np.flatnonzero(change)
    heads = np.stack([codes[name][starts] for name in SERIES_COLUMNS], axis=1)
    return len(np.unique(heads, axis=0)) < len(heads)
