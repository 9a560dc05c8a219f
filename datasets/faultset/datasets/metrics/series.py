"""Split metric samples into series, name series like Prometheus, and compute the growth of counters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from faultset.datasets.format.storage import SERIES_COLUMNS, as_array, in_one_chunk

Array = np.ndarray

CUMULATIVE = ("counter", "sum", "count", "bucket")
"""Kinds whose values only increase; all other kinds are levels."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Raw samples ordered by series and time, with the identity of each series."""

    starts: Array
    """Position of the first sample of each series."""
    times_ns: Array
    values: Array
    identity: dict[str, list[str | None]]
    """Metric, service, pod, container, labels and kind (one of `CUMULATIVE` or gauge) of each series."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Array:
        """Number of samples of each series."""
        return np.diff(np.append(self.starts, len(self.times_ns)))


def split_series(metrics: pa.Table) -> Series:
    """Split a metrics table, in any order, into its series."""
    table = in_one_chunk(metrics)
    times = np.asarray(table["time"].cast(pa.int64()).to_numpy())
    values = np.asarray(table["value"].to_numpy())
    codes: dict[str, Array] = {}
    words: dict[str, list[str | None]] = {}
    for name in (*SERIES_COLUMNS, "kind"):
        codes[name], words[name] = _codes_and_words(table[name])
    # Stored tables are grouped by series; other tables may need sorting.
    varying = [name for name in SERIES_COLUMNS if len(words[name]) > 1] or list(SERIES_COLUMNS[:1])
    change = _mark_changes([codes[name] for name in varying])
    if np.any((times[1:] < times[:-1]) & ~change[1:]) or _has_repeats(codes, change):
        order = np.lexsort([times, *(codes[name] for name in reversed(SERIES_COLUMNS))])
        times, values = times[order], values[order]
        codes = {name: column[order] for name, column in codes.items()}
        change = _mark_changes([codes[name] for name in varying])
    starts = np.flatnonzero(change)
    heads = {name: [words[name][code] for code in codes[name][starts]] for name in words}
    heads["kind"] = [kind if kind in CUMULATIVE else "gauge" for kind in heads["kind"]]
    return Series(starts=starts, times_ns=times, values=_clean_values(values, starts, heads["kind"]), identity=heads)


def _clean_values(values: Array, starts: Array, kinds: list[str | None]) -> Array:
    """Return values with NaN for infinity and for negative counters, buckets and counts."""
    invalid = np.isinf(values)
    counts = np.array([kind in CUMULATIVE and kind != "sum" for kind in kinds], dtype=bool)
    if counts.any() and (values < 0).any():
        lengths = np.diff(np.append(starts, len(values)))
        invalid |= np.repeat(counts, lengths) & (values < 0)
    return np.where(invalid, np.nan, values) if invalid.any() else values


def increases(series: Series) -> tuple[Array, Array]:
    """Return each sample's increase since the previous one and the seconds between the two; NaN for first samples.

    A decrease means that the counter restarted at zero. A label set that appears later than others of its metric and
    container also started at zero, at the time of the previous sample of the others.
    """
    increase = np.diff(series.values, prepend=np.nan)
    restarted = increase < 0
    increase[restarted] = series.values[restarted]
    seconds = np.diff(series.times_ns, prepend=0) / 1e9
    unusable = seconds <= 0
    unusable[series.starts] = True
    for number, since_ns in _find_births(series):
        first = series.starts[number]
        increase[first] = series.values[first]
        seconds[first] = (series.times_ns[first] - since_ns) / 1e9
        unusable[first] = False
    unusable |= np.isnan(increase)
    increase[unusable] = np.nan
    seconds[unusable] = np.nan
    return increase, seconds


def _find_births(series: Series) -> Iterator[tuple[int, int]]:
    """Yield each series that appears later than another one of its family, with the time of the scrape before it."""
    families: dict[tuple[str | None, ...], list[int]] = {}
    identity = series.identity
    for number, family in enumerate(zip(identity["metric"], identity["pod"], identity["container"], strict=True)):
        if identity["kind"][number] in CUMULATIVE:
            families.setdefault(family, []).append(number)
    ends = series.starts + series.lengths
    for members in families.values():
        if len(members) < 2:
            continue
        firsts = series.times_ns[series.starts[members]]
        oldest = members[int(np.argmin(firsts))]
        times = series.times_ns[series.starts[oldest] : ends[oldest]]
        if len(times) < 2:
            continue
        # Times within a scrape may differ slightly.
        tolerance_ns = float(np.median(np.diff(times))) / 2
        for number, first in zip(members, firsts, strict=True):
            previous = int(np.searchsorted(times, first - tolerance_ns)) - 1
            if previous >= 0:
                yield number, int(times[previous])


def _codes_and_words(column: pa.ChunkedArray) -> tuple[Array, list[str | None]]:
    """Return a code per row and the string of each code; null is one of the strings."""
    if not len(column):
        return np.zeros(0, dtype=np.int32), []
    array = as_array(column)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    words = array.dictionary.to_pylist()
    if not array.null_count and len(words) == 1:
        return np.broadcast_to(np.int32(0), len(array)), words
    if not array.null_count:
        return array.indices.to_numpy(zero_copy_only=False), words
    if array.null_count == len(array):
        return np.broadcast_to(np.int32(0), len(array)), [None]
    words.append(None)
    return array.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False), words


def _mark_changes(codes: list[Array]) -> Array:
    change = np.zeros(len(codes[0]), dtype=bool)
    change[:1] = True
    for column in codes:
        change[1:] |= column[1:] != column[:-1]
    return change


def _has_repeats(codes: dict[str, Array], change: Array) -> bool:
    """Return whether the rows of any series are not consecutive."""
    starts = np.flatnonzero(change)
    heads = np.stack([codes[name][starts] for name in SERIES_COLUMNS], axis=1)
    return len(np.unique(heads, axis=0)) < len(heads)


def series_labels(service: str, pod: str, container: str, labels: str) -> dict[str, str]:
    """Return the labels of a row of the metrics table.

    >>> series_labels("geo", "geo-1", "", '{"code":"200","pod":"x"}')
    {'service': 'geo', 'pod': 'geo-1', 'code': '200', 'label_pod': 'x'}
    """
    columns = {"service": service, "pod": pod, "container": container}
    pairs = {name: value for name, value in columns.items() if value}
    for name, value in json.loads(labels or "{}").items():
        pairs[f"label_{name}" if name in columns else name] = value if isinstance(value, str) else json.dumps(value)
    return pairs


def sample_text(value: float) -> str:
    """Return a sample as Prometheus writes it.

    >>> sample_text(2.0), sample_text(0.5), sample_text(float("inf"))
    ('2', '0.5', '+Inf')
    """
    if np.isfinite(value):
        return repr(float(value)).removesuffix(".0")
    return "NaN" if np.isnan(value) else "+Inf" if value > 0 else "-Inf"
