"""Types, labels and series of Prometheus, and native histograms in the format of its API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.core.files import canonical_json

KIND_MARK = "faultset.kind="
"""Prefix of help texts in our OpenMetrics exports, followed by the metric's kind, which OpenMetrics cannot express."""
DROPPED_LABELS = frozenset({"namespace", "instance", "id"})
"""Labels that differ between runs of the same application and do not identify a series."""


def canonical_labels(labels: Mapping[str, str]) -> str:
    """Return the identifying labels of a series as canonical JSON."""
    return canonical_json({name: value for name, value in labels.items() if name not in DROPPED_LABELS})


_SUFFIX_KINDS = (("_bucket", "bucket"), ("_sum", "sum"), ("_count", "count"))


def sample_kind(name: str, family: str, family_type: str) -> str:
    """Return the kind of a sample: counter, gauge, bucket, sum or count.

    >>> sample_kind("request_seconds_bucket", "request_seconds", "histogram")
    'bucket'
    >>> sample_kind("requests_total", "requests_total", "counter")
    'counter'
    """
    if family_type in ("histogram", "summary"):
        for suffix, kind in _SUFFIX_KINDS:
            if name == family + suffix:
                return kind
        return "gauge"
    return "counter" if family_type == "counter" else "gauge"


_UNIT_SUFFIXES = {
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "min": "minutes", "h": "hours",
    "d": "days", "By": "bytes", "KiBy": "kibibytes", "MiBy": "mebibytes", "GiBy": "gibibytes", "KBy": "kilobytes",
    "MBy": "megabytes", "GBy": "gigabytes", "%": "percent", "Cel": "celsius", "Hz": "hertz", "V": "volts",
    "A": "amperes",
}  # fmt: skip
"""Suffixes of names by UCUM code."""
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9:]+")


def prometheus_name(name: str, unit: str, kind: str) -> str:
    """Return the name under which Prometheus stores an OpenTelemetry metric.

    The rules follow OpenTelemetry's specification of compatibility with Prometheus.

    >>> prometheus_name("http.server.request.duration", "s", "histogram")
    'http_server_request_duration_seconds'
    >>> prometheus_name("http.server.requests", "{request}", "counter"), prometheus_name("up", "", "gauge")
    ('http_server_requests_total', 'up')
    """
    words = [word for word in _NOT_IN_NAMES.split(name) if word]
    total = kind == "counter"
    if total and words[-1:] == ["total"]:
        words.pop()
    suffix = "ratio" if unit == "1" and kind == "gauge" else _UNIT_SUFFIXES.get(unit.partition("/")[0], "")
    if suffix and suffix not in words:
        words.append(suffix)
    if "/" in unit and unit.partition("/")[2] == "s":
        words += ["per", "second"]
    text = "_".join([*words, *(["total"] if total else [])])
    return f"_{text}" if text[:1].isdigit() else text


class MetricTypes:
    """Types and units of metrics that exporters declare."""

    def __init__(self, metadata: Mapping[str, Any]):
        self._types = {name: entries[0].get("type", "") for name, entries in metadata.items() if entries}
        self.units = {
            name: entries[0]["unit"] for name, entries in metadata.items() if entries and entries[0].get("unit")
        }

    def declares_histogram(self, metric: str) -> bool:
        """Return whether a metric is declared as a histogram of cumulative counts or current values."""
        return self._types.get(metric) in ("histogram", "gaugehistogram")

    def holds_gauges(self, metric: str) -> bool:
        """Return whether a metric is a histogram of current values, whose counts may decrease."""
        return self._types.get(metric) == "gaugehistogram"

    def kind(self, metric: str, labels: Mapping[str, str]) -> str:
        """Return counter, gauge, bucket, sum or count.

        OpenMetrics declares the type of `requests_total` under the name `requests`.
        """
        for suffix, kind in _SUFFIX_KINDS:
            family = metric.removesuffix(suffix)
            if family != metric and self._types.get(family) in ("histogram", "summary"):
                return kind
        declared = self._types.get(metric) or self._types.get(metric.removesuffix("_total"), "")
        if declared == "counter":
            return "counter"
        if declared and declared != "unknown":
            return "gauge"
        if "le" in labels and metric.endswith("_bucket"):
            return "bucket"
        return "counter" if metric.endswith("_total") else "gauge"


Labels = Mapping[str, str]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
_INFINITY = "+Inf"
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Exemplar:
    """One observation of a series, with the labels that identify its trace."""

    time_ns: int
    value: float
    labels: Labels

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Exemplar:
        """Parse an exemplar of an API response."""
        time_ns = round(float(item["timestamp"]) * 1e3) * _NS_PER_MS
        return cls(time_ns=time_ns, value=float(item["value"]), labels=item.get("labels") or {})

    def find_id(self, *names: str) -> str | None:
        """Return the value of the first existing label in `names`, in lower case and without dashes."""
        text = next((self.labels[name] for name in names if self.labels.get(name)), None)
        return text and text.replace("-", "").lower()


@dataclass(frozen=True, kw_only=True)
class RawSeries:
    """A series of the server with its samples in time order."""

    labels: Labels
    times: npt.NDArray[np.int64]
    """Nanoseconds since 1970."""
    values: npt.NDArray[Any]
    """float64 without NaN, or objects for native histograms."""
    kind: str | None = None
    """bucket, sum or count for a series of a native histogram; None if the metric's type decides."""

    @property
    def is_histogram(self) -> bool:
        """Whether the samples are native histograms."""
        return self.values.dtype == object

    def select(self, mask: Flags) -> RawSeries:
        """Return the samples that a mask selects."""
        return replace(self, times=self.times[mask], values=self.values[mask])


def read_pairs(labels: Labels, pairs: Sequence[Any], *, histograms: bool = False) -> RawSeries:
    """Build a series from the pairs of a time and a value in a response of the API."""
    flat = list(chain.from_iterable(pairs))
    milliseconds = np.rint(np.fromiter(flat[0::2], np.float64, len(pairs)) * 1e3).astype(np.int64)
    if histograms:
        values = np.fromiter(flat[1::2], object, len(pairs))
    else:
        values = np.fromiter(map(float, flat[1::2]), np.float64, len(pairs))
    return RawSeries(labels=labels, times=milliseconds * _NS_PER_MS, values=values)


def classic_histogram(series: RawSeries) -> list[RawSeries]:
    """Return a native histogram as the buckets, sum and count of a classic one.

    There is a cumulative bucket for each upper bound in the series. If a bound lies inside a bucket of a sample, as
    after a change of resolution, the sample has no value at that bound.

    Raises
    ------
    ValueError
        A histogram does not have the format of Prometheus' API.
    """
    try:
        counts = np.array([float(item["count"]) for item in series.values])
        sums = np.array([float(item["sum"]) for item in series.values])
        rows: list[list[Any]] = [list(item.get("buckets") or ()) for item in series.values]
        texts = {float(upper): str(upper) for buckets in rows for _, _, upper, _ in buckets}
        bounds = sorted(bound for bound in texts if np.isfinite(bound))
        cumulative = np.array([_accumulate(buckets, bounds) for buckets in rows])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a histogram of Prometheus' API: {error!r}") from None
    buckets = [_build_series(series, "bucket", cumulative[:, row], le=texts[bound]) for row, bound in enumerate(bounds)]
    return [
        *buckets,
        _build_series(series, "bucket", counts, le=_INFINITY),
        _build_series(series, "sum", sums),
        _build_series(series, "count", counts),
    ]


def _accumulate(buckets: Sequence[Any], bounds: Sequence[float]) -> Numbers:
    """Return the number of observations up to each bound; NaN if a bucket contains the bound."""
    ordered = sorted((float(lower), float(upper), float(count)) for _, lower, upper, count in buckets)
    totals = np.cumsum([0.0, *(count for _, _, count in ordered)])
    ended_counts = np.searchsorted([upper for _, upper, _ in ordered], bounds, side="right")
    started_counts = np.searchsorted([lower for lower, _, _ in ordered], bounds, side="left")
    return np.where(started_counts > ended_counts, np.nan, totals[ended_counts])


def _build_series(series: RawSeries, kind: str, values: Numbers, **labels: str) -> RawSeries:
    labels = {**series.labels, "__name__": f"{series.labels['__name__']}_{kind}", **labels}
    return RawSeries(labels=labels, times=series.times, values=values, kind=kind).select(~np.isnan(values))
