"""Raw samples of a Prometheus server: range selectors, never `query_range`.

`query_range` would resample on a grid of its own and keep a dead pod's last value for five minutes. A range selector
gives what was scraped, with the time at which it was. Prometheus leaves staleness markers out of it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from faultset.collector.platforms.kubernetes.telemetry.endpoints import CutAnswer, Endpoint
from faultset.core.errors import PlatformError

SAMPLES_PER_ANSWER = 150_000
_FIRST_STEP_MS, _LEAST_STEP_MS, _MOST_STEP_MS = 60_000, 1_000, 3_600_000
_SELECTOR_CHARACTERS = 4_000
_MS = 1_000_000
_TOO_BIG = ("too many samples", "timed out", "timeout", "too large", "exceed", "resource exhausted", "limit")


def quoted(text: str) -> str:
    """Return a string literal of PromQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def one_of(names: Iterable[str]) -> str:
    """Return the literal of a regular expression that matches exactly these names."""
    return quoted("|".join(re.escape(name) for name in names))


class SampleReader:
    """Reads all samples of a window in answers that are small enough to be whole."""

    def __init__(self, endpoint: Endpoint, *, samples_per_answer: int = SAMPLES_PER_ANSWER):
        self._endpoint = endpoint
        self._wanted = samples_per_answer
        self.unreadable: dict[str, str] = {}
        """Native histograms that could not become rows, with the reason."""

    def families(self, matchers: Sequence[str], start_ns: int, end_ns: int) -> list[str]:
        """Return the names of all metrics with samples around the window.

        Parameters
        ----------
        matchers
            Selectors without braces, such as `namespace="shop"`; series of any of them count.
        """
        found = self._data(
            "/api/v1/label/__name__/values",
            {
                "match[]": [f"{{{matcher}}}" for matcher in matchers],
                "start": _seconds(start_ns // _MS),
                "end": _seconds(-(-end_ns // _MS)),
            },
        )
        return sorted(found or ())

    def series(self, matcher: str, families: Sequence[str], start_ns: int, end_ns: int) -> list[RawSeries]:
        """Return every sample with `start_ns <= time < end_ns` of the named metrics.

        Raises
        ------
        PlatformError
            The server refuses, or even one metric in a second is more than it gives.
        """
        pieces: dict[tuple[Any, ...], list[RawSeries]] = {}
        for batch in _batches(families):
            for one in self._windows(matcher, batch, start_ns // _MS, -(-end_ns // _MS)):
                pieces.setdefault((one.is_histogram, *sorted(one.labels.items())), []).append(one)
        joined = []
        for parts in pieces.values():
            times = np.concatenate([part.times for part in parts])
            one = replace(parts[0], times=times, values=np.concatenate([part.values for part in parts]))
            one = one.select((times >= start_ns) & (times < end_ns))
            joined.append(one if one.is_histogram else one.select(~np.isnan(one.values)))
        return self._without_histograms([one for one in joined if len(one.times)])

    def _without_histograms(self, found: Sequence[RawSeries]) -> list[RawSeries]:
        """Replace native histograms by series; one that the server keeps in the classic form as well is left out."""
        made = [one for one in found if not one.is_histogram]
        names = {tuple(sorted(one.labels.items())) for one in made}
        for one in found:
            if one.is_histogram:
                try:
                    parts = classic_histogram(one)
                except ValueError as error:
                    self.unreadable[one.labels.get("__name__", "")] = str(error)
                    continue
                if tuple(sorted(parts[-1].labels.items())) not in names:
                    made += parts
        return made

    def latest(self, selector: str, window_s: float) -> list[RawSeries]:
        """Return the samples of the last seconds by the server's clock."""
        found = self._query(f"{selector}[{max(1, round(window_s * 1e3))}ms]", None)
        return [one for one in parsed(found) if len(one.times) and not one.is_histogram]

    def instant(self, expression: str) -> list[tuple[Labels, float]]:
        """Return the value of an expression now, series by series."""
        found = self._query(expression, None)
        if isinstance(found, Mapping) and found.get("resultType") == "scalar":
            return [({}, float(found["result"][1]))]
        return [(one.get("metric", {}), float(one["value"][1])) for one in _result(found, "vector")]

    def _windows(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> Iterable[RawSeries]:
        step_ms, at_ms = _FIRST_STEP_MS, start_ms
        while at_ms < end_ms:
            until_ms = min(at_ms + step_ms, end_ms)
            try:
                found = self._range(matcher, families, at_ms, until_ms)
            except PlatformError as error:
                if not is_too_big(error):
                    raise
                if until_ms - at_ms > _LEAST_STEP_MS:
                    step_ms = max(_LEAST_STEP_MS, (until_ms - at_ms) // 2)
                    continue
                if len(families) > 1:
                    half = len(families) // 2
                    yield from self._windows(matcher, families[:half], at_ms, end_ms)
                    yield from self._windows(matcher, families[half:], at_ms, end_ms)
                    return
                raise PlatformError(
                    f"{self._endpoint.name} does not give one second of {families[0]} ({error}); raise its limit on "
                    "samples per query"
                ) from None
            yield from found
            count = sum(_size(one) for one in found)
            growth = self._wanted / max(count, 1)
            step_ms = int((until_ms - at_ms) * min(max(growth, 0.25), 4.0))
            step_ms = min(max(step_ms, _LEAST_STEP_MS), _MOST_STEP_MS)
            at_ms = until_ms

    def _range(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> list[RawSeries]:
        """Return the samples of `[start, end)`; one server's ranges contain their start, another's do not."""
        selector = f"{{__name__=~{one_of(families)},{matcher}}}[{end_ms - start_ms}ms]"
        made = []
        for one in parsed(self._query(selector, end_ms - 1)):
            times = one.times // _MS
            kept = (times >= start_ms) & (times < end_ms)
            if kept.any():
                made.append(one.select(kept))
        return made

    def _query(self, expression: str, at_ms: int | None) -> Any:
        params = {"query": expression} | ({} if at_ms is None else {"time": _seconds(at_ms)})
        return self._data("/api/v1/query", params)

    def _data(self, path: str, params: Mapping[str, str | Sequence[str]]) -> Any:
        answer = self._endpoint.get(path, params)
        if not isinstance(answer, Mapping) or answer.get("status") != "success":
            said = answer.get("error", "no success") if isinstance(answer, Mapping) else "not an object"
            raise PlatformError(f"{self._endpoint.name} refuses {path}: {said}")
        warnings = answer.get("warnings")
        if warnings:
            raise CutAnswer(f"{self._endpoint.name} answers {path} only in part: {warnings[0]}")
        return answer.get("data")


def parsed(data: Any) -> list[RawSeries]:
    """Return the series of the answer to a range selector, NaN and native histograms included."""
    made = []
    for one in _result(data, "matrix"):
        if one.get("values"):
            made.append(read_pairs(one["metric"], one["values"]))
        if one.get("histograms"):
            made.append(read_pairs(one["metric"], one["histograms"], histograms=True))
    return made


def _size(series: RawSeries) -> int:
    """Return how many samples a series is for limits of answers: a bucket counts as one."""
    if not series.is_histogram:
        return len(series.times)
    return sum(2 + len(one.get("buckets") or ()) if isinstance(one, Mapping) else 1 for one in series.values)


def is_too_big(error: PlatformError) -> bool:
    """Say whether less at a time may help."""
    text = str(error).lower()
    return isinstance(error, CutAnswer) or any(phrase in text for phrase in _TOO_BIG)


def _result(data: Any, kind: str) -> list[Any]:
    if not isinstance(data, Mapping) or data.get("resultType") != kind:
        raise CutAnswer(f"a Prometheus server was asked for a {kind} and gave something else")
    return data.get("result") or []


def _batches(families: Sequence[str]) -> Iterable[Sequence[str]]:
    batch: list[str] = []
    size = 0
    for family in families:
        if batch and size + len(family) + 1 > _SELECTOR_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(family)
        size += len(family) + 1
    if batch:
        yield batch


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


_DURATION = re.compile(r"(\d+)(ms|[smhdwy])")


_UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}


_SUFFIX_KINDS = (("_bucket", "bucket"), ("_sum", "sum"), ("_count", "count"))


def duration_s(text: str) -> float:
    """Return a duration in Prometheus' notation as seconds.

    >>> duration_s("1m30s")
    90.0
    """
    return sum(int(number) * _UNIT_S[unit] for number, unit in _DURATION.findall(text))


@dataclass(kw_only=True)
class Targets:
    """Scraped addresses and the labels that scraping adds to their series.

    What is known of a target that has gone stays known.
    """

    labels: dict[tuple[str, str], Labels] = field(default_factory=dict)
    """By job and instance."""
    names: dict[str, set[str]] = field(default_factory=dict)
    """By job: names of the labels that any of its targets has."""
    intervals_s: dict[str, float] = field(default_factory=dict)
    """By scrape pool."""
    container_pool: str | None = None
    """Scrape pool of the kubelets' container metrics."""

    def learn(self, endpoint: Endpoint) -> None:
        """Ask the server; a server without this interface (some stores that speak PromQL) leaves it empty."""
        try:
            answer = endpoint.get("/api/v1/targets", {"state": "active"})
            active = answer["data"]["activeTargets"]
        except (PlatformError, KeyError, TypeError):
            return
        for target in active:
            labels = dict(target.get("labels") or {})
            job, instance = labels.get("job", ""), labels.get("instance", "")
            self.labels[job, instance] = labels
            self.names.setdefault(job, set()).update(labels)
            pool = target.get("scrapePool") or job
            if target.get("scrapeInterval"):
                self.intervals_s[pool] = duration_s(target["scrapeInterval"])
            if "cadvisor" in str(target.get("scrapeUrl", "")):
                self.container_pool = pool


def scrape_interval_s(endpoint: Endpoint, targets: Targets) -> float:
    """Return the time between two scrapes of the containers, else the server's default.

    Raises
    ------
    PlatformError
        The server says neither.
    """
    if targets.container_pool in targets.intervals_s:
        return targets.intervals_s[targets.container_pool]
    with contextlib.suppress(PlatformError, KeyError, TypeError, yaml.YAMLError):
        config = yaml.safe_load(endpoint.get("/api/v1/status/config")["data"]["yaml"])
        return duration_s(str(config["global"]["scrape_interval"]))
    if targets.intervals_s:
        return max(targets.intervals_s.values())
    raise PlatformError(f"{endpoint.name} does not say how often it scrapes, neither in its targets nor in its config")


class MetricTypes:
    """Types and units of metrics as their exporters declare them."""

    def __init__(self, metadata: Mapping[str, Any]):
        self._types = {name: entries[0].get("type", "") for name, entries in metadata.items() if entries}
        self.units = {
            name: entries[0]["unit"] for name, entries in metadata.items() if entries and entries[0].get("unit")
        }

    @classmethod
    def asked(cls, endpoint: Endpoint) -> MetricTypes:
        """Ask the server; without an answer the names have to tell."""
        try:
            return cls(endpoint.get("/api/v1/metadata")["data"] or {})
        except (PlatformError, KeyError, TypeError):
            return cls({})

    def declares_histogram(self, metric: str) -> bool:
        """Return whether a metric is declared to be a histogram of cumulative counts or of present values."""
        return self._types.get(metric) in ("histogram", "gaugehistogram")

    def holds_gauges(self, metric: str) -> bool:
        """Return whether a metric is a histogram of present values, whose counts may fall."""
        return self._types.get(metric) == "gaugehistogram"

    def kind(self, metric: str, labels: Mapping[str, str]) -> str:
        """Return counter, gauge, bucket, sum or count.

        An exporter of OpenMetrics declares `requests` for the counter `requests_total`.
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
