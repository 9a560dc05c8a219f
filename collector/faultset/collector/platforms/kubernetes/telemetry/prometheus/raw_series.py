"""Series as a Prometheus server names them, and native histograms as the series of classic ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

Labels = Mapping[str, str]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
_INFINITY = "+Inf"
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class RawSeries:
    """One series as the server names it, with its samples in order of time.

    Attributes
    ----------
    times
        int64, nanoseconds since 1970.
    values
        float64, without NaN; objects in a series of native histograms.
    kind
        bucket, sum or count in a part of a native histogram; elsewhere the metric's type decides.
    """

    labels: Labels
    times: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    kind: str | None = None

    @property
    def is_histogram(self) -> bool:
        """Whether the samples are native histograms."""
        return self.values.dtype == object

    def select(self, kept: Flags) -> RawSeries:
        """Return the chosen samples."""
        return replace(self, times=self.times[kept], values=self.values[kept])


def read_pairs(labels: Labels, pairs: Sequence[Any], *, histograms: bool = False) -> RawSeries:
    """Return the series of pairs of time and value in an answer of the server's API."""
    flat = list(chain.from_iterable(pairs))
    milliseconds = np.rint(np.fromiter(flat[0::2], np.float64, len(pairs)) * 1e3).astype(np.int64)
    if histograms:
        values = np.fromiter(flat[1::2], object, len(pairs))
    else:
        values = np.fromiter(map(float, flat[1::2]), np.float64, len(pairs))
    return RawSeries(labels=labels, times=milliseconds * _NS_PER_MS, values=values)


def classic_histogram(series: RawSeries) -> list[RawSeries]:
    """Return buckets, sum and count that a classic histogram of the same observations would have.

    There is a cumulative bucket for each upper bound that occurs in the series. A sample has no value at a bound inside
    of one of its own buckets, as after a change of resolution.

    Raises
    ------
    ValueError
        A histogram has another form than that of Prometheus' API.
    """
    try:
        counts = np.array([float(one["count"]) for one in series.values])
        sums = np.array([float(one["sum"]) for one in series.values])
        rows: list[list[Any]] = [list(one.get("buckets") or ()) for one in series.values]
        texts = {float(upper): str(upper) for buckets in rows for _, _, upper, _ in buckets}
        bounds = sorted(bound for bound in texts if np.isfinite(bound))
        cumulative = np.array([_cumulative(buckets, bounds) for buckets in rows])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a histogram of Prometheus' API: {error!r}") from None
    buckets = [_part(series, "bucket", cumulative[:, row], le=texts[bound]) for row, bound in enumerate(bounds)]
    return [
        *buckets,
        _part(series, "bucket", counts, le=_INFINITY),
        _part(series, "sum", sums),
        _part(series, "count", counts),
    ]


def _cumulative(buckets: Sequence[Any], bounds: Sequence[float]) -> Numbers:
    """Return how many observations were at most each of the bounds, NaN where the buckets do not say."""
    ordered = sorted((float(lower), float(upper), float(count)) for _, lower, upper, count in buckets)
    totals = np.cumsum([0.0, *(count for _, _, count in ordered)])
    ended = np.searchsorted([upper for _, upper, _ in ordered], bounds, side="right")
    begun = np.searchsorted([lower for lower, _, _ in ordered], bounds, side="left")
    return np.where(begun > ended, np.nan, totals[ended])


def _part(series: RawSeries, kind: str, values: Numbers, **labels: str) -> RawSeries:
    labels = {**series.labels, "__name__": f"{series.labels['__name__']}_{kind}", **labels}
    return RawSeries(labels=labels, times=series.times, values=values, kind=kind).select(~np.isnan(values))
