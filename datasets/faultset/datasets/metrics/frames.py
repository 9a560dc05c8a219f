"""Convert raw metric samples to wide frames of rates and levels on a regular grid, and cache the frames.

A sample belongs to the step in which it was taken. A counter's rate is its increase between two samples divided by the
time between them, and belongs to the step of the later sample. If the value decreases, the counter has restarted at
zero, so the increase is the value itself. Infinite samples and negative samples of counters are ignored.

Short gaps of a series are filled before it is combined with others, because the sum over a service's pods would
otherwise drop whenever a sample of a pod is lost. Levels keep their last value, rates take the average up to the next
sample.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.errors import DataError, UsageError
from faultset.core.regular_files import FileStamp, stat_regular_file
from faultset.datasets.cache import cached_path, store_file
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import table_file
from faultset.datasets.metrics.roles import Catalogue, builtin_catalogue
from faultset.datasets.metrics.series import Array, Series, increases, split_series
from faultset.datasets.status_codes import OUTCOME_ATTRIBUTES, read_failure

Key = tuple[str, str]
"""Service and metric of a column."""

_OUTCOME_LABELS = {name.replace(".", "_"): name for name in OUTCOME_ATTRIBUTES}
"""Metric labels with the outcome of requests -> the attributes that they are derived from."""
_MAX_GAP = 4.0
"""Longest gap that is filled, in units of the average distance between samples of the series."""


def wide_frame(
    metrics: pa.Table, start_ns: int, end_ns: int, step_s: float = 1.0, *, catalogue: Catalogue | None = None
) -> pd.DataFrame:
    """Return levels and per-second rates of every (service, metric) on a regular grid over a window.

    Parameters
    ----------
    metrics
        Rows of the metrics table; rows without a service are ignored.
    start_ns, end_ns
        Half-open window, UTC nanoseconds; the index has the start of each step.
    step_s
        Length of a step in seconds.
    catalogue
        Defines how several series of a service are combined; the built-in one by default.

    Returns
    -------
    DataFrame
        Sorted columns (service, metric); NaN where a step has no sample of any series of a column. Counters become
        rates per second, summed over pods, containers and label sets. Gauges are averaged within a step and combined
        by the catalogue's rule, or by their mean if they are not in the catalogue. A histogram `h` becomes `h_mean`
        (average observation of the step), `h_rate` (observations per second) and, if its labels distinguish errors
        from successes, `h_error_rate`; buckets are left out.
    """
    step_ns = round(step_s * 1e9)
    if step_ns <= 0 or end_ns <= start_ns:
        raise UsageError(
            f"the step and the window of a wide frame must be above zero, got {step_s} s and {end_ns - start_ns} ns"
        )
    steps = math.ceil((end_ns - start_ns) / step_ns)
    index = pd.DatetimeIndex(start_ns + step_ns * np.arange(steps), tz="UTC", name="time").as_unit("ns")
    catalogue = catalogue or builtin_catalogue()
    series = split_series(metrics)
    cells = _assign_cells(series, start_ns, step_ns, steps)
    kinds = series.identity["kind"]
    columns: dict[Key, Array] = {}
    if "gauge" in kinds:
        columns |= _compute_levels(series, cells, catalogue)
    if {"counter", "sum", "count"} & set(kinds):
        rates = _compute_rates(series, cells)
        columns |= _sum_rates(series, rates, catalogue)
        columns |= _compute_histograms(series, rates)
    keys = sorted(columns)
    data = np.stack([columns[key] for key in keys], axis=1) if keys else np.empty((steps, 0))
    return pd.DataFrame(data, index=index, columns=_build_index(keys))


def _build_index(keys: Sequence[Key]) -> pd.MultiIndex:
    """Return the result of `MultiIndex.from_tuples` in a tenth of its time."""
    levels, codes = [], []
    for words in zip(*keys, strict=True) if keys else ((), ()):
        level = sorted(set(words))
        code = {word: number for number, word in enumerate(level)}
        levels.append(level)
        codes.append([code[word] for word in words])
    return pd.MultiIndex(levels=levels, codes=codes, names=["service", "metric"], verify_integrity=False)


def _compute_levels(series: Series, cells: _Cells, catalogue: Catalogue) -> dict[Key, Array]:
    sums, counts = _sum_by_step(series, cells, series.values)
    with np.errstate(invalid="ignore"):
        levels = np.where(counts > 0, sums / counts, np.nan)
    filled = _fill_gaps(levels, "last")
    columns = {}
    for key, rows in _group_series(series, "gauge", catalogue).items():
        if len(rows) == 1:
            columns[key] = levels[rows[0]]
            continue
        row = catalogue.find(series.identity["metric"][rows[0]] or "")
        columns[key] = _combine(levels[rows], filled[rows], row.combine if row else "mean")
    return columns


def _sum_rates(series: Series, rates: Array, catalogue: Catalogue) -> dict[Key, Array]:
    filled = _fill_gaps(rates, "next")
    members = _group_series(series, "counter", catalogue)
    return {key: _combine(rates[rows], filled[rows], "sum") for key, rows in members.items()}


def _compute_histograms(series: Series, rates: Array) -> dict[Key, Array]:
    columns = {}
    filled = _fill_gaps(rates, "next")
    sums = _group_series(series, "sum")
    for (service, metric), rows in _group_series(series, "count").items():
        family = metric.removesuffix("_count")
        rate = _combine(rates[rows], filled[rows], "sum")
        columns[service, f"{family}_rate"] = rate
        if (service, f"{family}_sum") in sums:
            total = sums[service, f"{family}_sum"]
            columns[service, f"{family}_mean"] = _divide_sums(series, rates, filled, total, rows)
        failed = [_is_error(series.identity["labels"][row]) for row in rows]
        if any(verdict is not None for verdict in failed):
            errors = [row for row, verdict in zip(rows, failed, strict=True) if verdict]
            zero_or_nan = np.where(np.isnan(rate), np.nan, 0.0)
            columns[service, f"{family}_error_rate"] = zero_or_nan + np.nan_to_num(filled[errors]).sum(axis=0)
    return columns


def _divide_sums(series: Series, rates: Array, filled: Array, sums: list[int], counts: list[int]) -> Array:
    """Divide the sum of observations by their count."""
    labels = [series.identity[name] for name in ("pod", "container", "labels")]
    count_of = {tuple(words[row] for words in labels): row for row in counts}
    pairs = [(row, count_of.get(tuple(words[row] for words in labels))) for row in sums]
    row_pairs = np.array([pair for pair in pairs if pair[1] is not None], dtype=np.intp).reshape(-1, 2).T
    first, second = np.isnan(rates[row_pairs])
    sampled: Array = ~(first | second)
    observed, times = filled[row_pairs]
    if (first != second).any():
        observed, times = _average_gaps(observed, sampled), _average_gaps(times, sampled)
    total, rate = (_combine(np.where(sampled, values, np.nan), values, "sum") for values in (observed, times))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(rate > 0, total / rate, np.nan)


def _average_gaps(values: Array, sampled: Array) -> Array:
    """Average rates over the steps since the last sampled one, so that two series cover the same time."""
    last, after = _find_sampled_steps(sampled, "last"), _find_sampled_steps(sampled, "next")
    inside = (last >= 0) & (after >= 0) & ~np.isnan(values)
    segment = after + np.arange(len(sampled))[:, None] * sampled.shape[1]
    total = np.bincount(segment[inside], values[inside], sampled.size)
    means = total / np.maximum(np.bincount(segment[inside], minlength=sampled.size), 1)
    return np.where(inside, means[np.maximum(segment, 0)], np.nan)


def _find_sampled_steps(sampled: Array, side: Literal["last", "next"]) -> Array:
    """Return, for each step, the nearest step with a sample: at or before it ("last"), or at or after it ("next").

    The result is -1 if no such step exists.
    """
    steps = np.arange(sampled.shape[1])
    if side == "last":
        return np.maximum.accumulate(np.where(sampled, steps, -1), axis=1)
    after = np.minimum.accumulate(np.where(sampled, steps, len(steps))[:, ::-1], axis=1)[:, ::-1]
    return np.where(after < len(steps), after, -1)


def _fill_gaps(rows: Array, side: Literal["last", "next"]) -> Array:
    """Fill short gaps with the last or the next sample."""
    sampled = ~np.isnan(rows)
    if sampled.all():
        return rows
    count = sampled.sum(axis=1)
    span = np.where(count > 0, rows.shape[1] - 1 - sampled[:, ::-1].argmax(axis=1) - sampled.argmax(axis=1), 0)
    gaps = np.flatnonzero(span >= count)
    gaps = gaps[count[gaps] > 0]
    if not len(gaps):
        return rows
    last, after = (_find_sampled_steps(sampled[gaps], end) for end in ("last", "next"))
    limit = _MAX_GAP * span[gaps] / np.maximum(count[gaps] - 1, 1)
    fill = ~sampled[gaps] & (last >= 0) & (after >= 0) & (after - last <= limit[:, None])
    filled = rows.copy()
    source = last if side == "last" else after
    filled[gaps] = np.where(fill, np.take_along_axis(rows[gaps], np.maximum(source, 0), axis=1), rows[gaps])
    return filled


def _group_series(series: Series, kind: str, catalogue: Catalogue | None = None) -> dict[Key, list[int]]:
    """Return the series of a kind for each column."""
    members: dict[Key, list[int]] = {}
    identity = series.identity
    for number, kind_of_series in enumerate(identity["kind"]):
        service, metric = identity["service"][number], identity["metric"][number]
        if kind_of_series == kind and service is not None and metric is not None:
            if catalogue and not catalogue.stored_roles(metric):
                continue
            row = catalogue.find(metric) if catalogue else None
            column = _name_column(metric, row.keep_label, identity["labels"][number]) if row else metric
            members.setdefault((service, column), []).append(number)
    return members


def _compute_rates(series: Series, cells: _Cells) -> Array:
    increases_per_sample, seconds = increases(series)
    increase, count = _sum_by_step(series, cells, increases_per_sample)
    elapsed, _ = _sum_by_step(series, cells, seconds)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, increase / elapsed, np.nan)


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Series and step of every sample."""

    steps: int
    numbers: Array | None = None
    """[n] series number x steps + step of every sample, -1 outside the window."""
    clock: Array | None = None
    """[samples per series] steps in ascending order, if all series were sampled at the same times."""


def _sum_by_step(series: Series, cells: _Cells, values: Array) -> tuple[Array, Array]:
    """Return the sum and the number of `values` per series and step."""
    shape = (len(series), cells.steps)
    missing = np.isnan(values)
    is_complete = not missing.any()
    if cells.clock is not None and is_complete:
        first = int(np.searchsorted(cells.clock, 0))
        inside = cells.clock[first:]
        sums, counts = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        if len(inside):
            starts = np.flatnonzero(np.diff(inside, prepend=-1))
            sums[:, inside[starts]] = np.add.reduceat(values.reshape(len(series), -1)[:, first:], starts, axis=1)
            counts[:, inside[starts]] = np.diff(np.append(starts, len(inside)))
        return sums, counts
    numbers = _number_cells(series, cells)
    is_complete = is_complete and bool((numbers >= 0).all())
    used = slice(None) if is_complete else (numbers >= 0) & ~missing
    size = len(series) * cells.steps
    sums = np.bincount(numbers[used], weights=values[used], minlength=size)
    return sums.reshape(shape), np.bincount(numbers[used], minlength=size).reshape(shape)


def _number_cells(series: Series, cells: _Cells) -> Array:
    if cells.numbers is not None:
        return cells.numbers
    assert cells.clock is not None
    rows = np.arange(len(series))[:, None] * cells.steps
    return np.where(cells.clock < 0, -1, rows + cells.clock).ravel()


def _assign_cells(series: Series, start_ns: int, step_ns: int, steps: int) -> _Cells:
    """Return the step of every sample, corrected for jitter.

    A series that is sampled once per step gets one sample in each step. Without the correction, jitter of milliseconds
    at the edge of a step would leave one step empty and put two samples into the next.
    """
    if not len(series):
        return _Cells(steps=steps, numbers=np.zeros(0, dtype=np.int64))
    length = int(series.lengths[0])
    if len(series) > 1 and np.all(series.lengths == length):
        times = series.times_ns.reshape(-1, length)
        if np.all(times == times[0]):
            # Imported frames share a clock.
            clock = _assign_steps(times[0], np.zeros(1, dtype=np.int64), start_ns, step_ns, steps)
            outside = clock < 0
            if np.all(clock[1:] >= clock[:-1]) and not outside[np.argmin(outside) :].any():
                return _Cells(steps=steps, clock=clock)
    cells = _assign_steps(series.times_ns, series.starts, start_ns, step_ns, steps)
    numbers = np.where(cells < 0, -1, np.repeat(np.arange(len(series)), series.lengths) * steps + cells)
    return _Cells(steps=steps, numbers=numbers)


def _assign_steps(times_ns: Array, starts: Array, start_ns: int, step_ns: int, steps: int) -> Array:
    """Return the step of every sample, -1 outside the window."""
    position = (times_ns - start_ns) / step_ns
    plain = np.floor(position)
    angle = (2 * np.pi * (position - plain)).astype(np.float32)
    lengths = np.diff(np.append(starts, len(times_ns)))
    cosine = np.add.reduceat(np.cos(angle), starts) / lengths
    sine = np.add.reduceat(np.sin(angle), starts) / lengths
    phase = np.arctan2(sine, cosine) / (2 * np.pi) % 1.0
    nominal = np.round(position - np.repeat(phase, lengths))
    # If samples are at the edges of steps, the side with the most samples decides.
    side = np.round(np.add.reduceat(plain - nominal, starts) / lengths)
    steady = np.repeat(np.hypot(sine, cosine) > 0.8, lengths)
    step = np.clip(np.where(steady, nominal + np.repeat(side, lengths), plain), 0, steps - 1).astype(np.int64)
    return np.where((plain >= 0) & (plain < steps), step, -1)


def _combine(rows: Array, filled: Array, how: str) -> Array:
    """Combine the filled rows of a column per step; NaN where no row has a sample."""
    if len(rows) == 1:
        return rows[0]
    sampled = ~np.isnan(rows).all(axis=0)
    if how in ("min", "max"):
        return np.where(sampled, (np.fmin if how == "min" else np.fmax).reduce(filled, axis=0), np.nan)
    present = ~np.isnan(filled)
    total = np.where(present, filled, 0.0).sum(axis=0)
    if how == "mean":
        total /= np.maximum(present.sum(axis=0), 1)
    return np.where(sampled, total, np.nan)


def _name_column(metric: str, keep_label: str, labels: str | None) -> str:
    if not keep_label or not labels:
        return metric
    value = json.loads(labels).get(keep_label)
    return metric if value is None else f'{metric}{{{keep_label}="{value}"}}'


def _is_error(labels: str | None) -> bool | None:
    """Return whether a label set counts failed requests; None if it has no outcome."""
    content = json.loads(labels or "{}")
    if content.get("error_type"):
        return True
    failed = read_failure({name: content[label] for label, name in _OUTCOME_LABELS.items() if label in content})
    return False if failed is None and "error_type" in content else failed


REVISION = 4
"""Increment this when `wide_frame` returns different numbers."""
MIN_CACHED_BYTES = 1 << 20
"""Frames of smaller metrics files are not cached, because computing them is as fast as reading them."""


def frame_facts(context: EpisodeContext, step_s: float, roles: frozenset[str] | None) -> dict[str, Any]:
    """Return everything that determines the wide frame of an episode, except the samples."""
    return {
        "episode": context.episode,
        "start_ns": context.view_start_ns,
        "end_ns": context.view_end_ns,
        "step_ns": round(step_s * 1e9),
        "roles": None if roles is None else sorted(roles),
        "metric_roles": [dict(row) for row in context.metric_roles],
    }


def cached_frame(episode: Path, facts: dict[str, Any], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return the wide frame that `frame_facts` describes from the cache, or compute and cache it.

    Nothing is cached if the episode's dataset has no version.
    """
    path = _build_path(episode, facts)
    if path is None or not (episode.parent.parent / "versions").is_dir():
        return make()
    frame = _read_frame(path, facts)
    if frame is None:
        frame = make()
        _store_frame(path, frame)
    return frame


def cache_frame(episode: Path, facts: dict[str, Any], make: Callable[[], pd.DataFrame]) -> None:
    """Compute and cache a frame of an episode that was just written."""
    path = _build_path(episode, facts)
    if path is not None:
        _store_frame(path, make())


def _build_path(episode: Path, facts: dict[str, Any]) -> Path | None:
    """Return the cache file of a frame, or None if the metrics are missing or too small."""
    try:
        stamp = FileStamp.of(episode / table_file("metrics"), episode)
    except DataError:
        return None
    if stamp.bytes < MIN_CACHED_BYTES:
        return None
    identity = json.dumps([REVISION, *astuple(stamp), facts], sort_keys=True)
    name = f"{facts['episode']}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.frame"
    return cached_path(episode.parent.parent, name)


def _read_frame(path: Path, facts: dict[str, Any]) -> pd.DataFrame | None:
    try:
        if path.parent.is_symlink():
            return None
        stat_regular_file(path)
        with path.open("rb") as file:
            columns = _parse_columns(file.readline())
            data = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, DataError, RecursionError, TypeError):
        return None
    if data.ndim != 2 or data.shape[1] != len(columns):
        return None
    times = facts["start_ns"] + facts["step_ns"] * np.arange(len(data))
    index = pd.DatetimeIndex(times, tz="UTC", name="time").as_unit("ns")
    return pd.DataFrame(data, index=index, columns=columns)


@lru_cache(maxsize=16)
def _parse_columns(header: bytes) -> pd.MultiIndex:
    """Parse the names of the columns; most episodes of a system share them."""
    return pd.MultiIndex.from_tuples([tuple(pair) for pair in json.loads(header)], names=["service", "metric"])


def _store_frame(path: Path, frame: pd.DataFrame) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(json.dumps([list(pair) for pair in frame.columns]).encode() + b"\n")
        np.save(file, np.ascontiguousarray(frame.to_numpy(dtype=float)), allow_pickle=False)

    store_file(path, write)
