"""Read raw samples from a Prometheus server with range selectors.

`query_range` resamples to a grid and repeats a deleted pod's last value for five minutes. A range selector returns the
samples as they were scraped, with their times and without staleness markers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import yaml

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, TruncatedResponse
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.prometheus import (
    Exemplar,
    Labels,
    MetricTypes,
    RawSeries,
    classic_histogram,
    read_pairs,
)

SAMPLES_PER_RESPONSE = 150_000
_FIRST_STEP_MS, _MIN_STEP_MS, _MAX_STEP_MS = 60_000, 1_000, 3_600_000
_SELECTOR_CHARACTERS = 4_000
_MS_NS = 1_000_000
_TOO_BIG = ("too many samples", "timed out", "timeout", "too large", "exceed", "resource exhausted", "limit")


def quote(text: str) -> str:
    """Return a string as a PromQL literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def match_any(names: Iterable[str]) -> str:
    """Return the PromQL literal of a regular expression that matches exactly these names."""
    return quote("|".join(re.escape(name) for name in names))


class SampleReader:
    """Reads all samples of a window with queries whose responses stay below the server's limits."""

    def __init__(self, endpoint: Endpoint, *, samples_per_response: int = SAMPLES_PER_RESPONSE):
        self._endpoint = endpoint
        self._samples_per_response = samples_per_response
        self.unreadable: dict[str, str] = {}
        """Metrics that could not be converted to rows, with the reason."""

    def families(self, matchers: Sequence[str], start_ns: int, end_ns: int) -> list[str]:
        """Return the names of all metrics with samples in the window.

        Parameters
        ----------
        matchers
            Selectors without braces, such as `namespace="shop"`; a series must match at least one.
        """
        names = self._data(
            "/api/v1/label/__name__/values",
            {
                "match[]": [f"{{{matcher}}}" for matcher in matchers],
                "start": _seconds(start_ns // _MS_NS),
                "end": _seconds(-(-end_ns // _MS_NS)),
            },
        )
        return sorted(names or ())

    def series(self, matcher: str, families: Sequence[str], start_ns: int, end_ns: int) -> list[RawSeries]:
        """Return all samples of the metrics in `[start_ns, end_ns)`.

        Raises
        ------
        PlatformError
            The server refuses the request, or one metric in one second exceeds its limits.
        """
        pieces: dict[tuple[Any, ...], list[RawSeries]] = {}
        for batch in batch_families(families):
            for piece in self.pieces(matcher, batch, start_ns, end_ns):
                pieces.setdefault((piece.is_histogram, *sorted(piece.labels.items())), []).append(piece)
        result = []
        for group in pieces.values():
            times = np.concatenate([piece.times for piece in group])
            series = replace(group[0], times=times, values=np.concatenate([piece.values for piece in group]))
            series = series.select((times >= start_ns) & (times < end_ns))
            result.append(series if series.is_histogram else series.select(~np.isnan(series.values)))
        return self._convert_histograms([series for series in result if len(series.times)])

    def pieces(self, matcher: str, families: Sequence[str], start_ns: int, end_ns: int) -> Iterator[RawSeries]:
        """Yield the samples of one batch from `batch_families`; the pieces of each metric are in time order."""
        return self._windows(matcher, families, start_ns // _MS_NS, -(-end_ns // _MS_NS))

    def _convert_histograms(self, all_series: Sequence[RawSeries]) -> list[RawSeries]:
        """Replace native histograms with classic series, unless the server also stores the classic series."""
        converted = [series for series in all_series if not series.is_histogram]
        names = {tuple(sorted(series.labels.items())) for series in converted}
        for series in all_series:
            if series.is_histogram:
                try:
                    classic = classic_histogram(series)
                except ValueError as error:
                    self.unreadable[series.labels.get("__name__", "")] = str(error)
                    continue
                if tuple(sorted(classic[-1].labels.items())) not in names:
                    converted += classic
        return converted

    def exemplars(self, matcher: str, start_ns: int, end_ns: int) -> list[tuple[Labels, list[Exemplar]]]:
        """Return the exemplars in `[start_ns, end_ns)` with the labels of their series."""
        params = {
            "query": f"{{{matcher}}}",
            "start": _seconds(start_ns // _MS_NS),
            "end": _seconds(-(-end_ns // _MS_NS)),
        }
        result = []
        for series in self._data("/api/v1/query_exemplars", params) or ():
            exemplars = [Exemplar.parse(item) for item in series["exemplars"]]
            result.append((series["seriesLabels"], [item for item in exemplars if start_ns <= item.time_ns < end_ns]))
        return result

    def latest(self, selector: str, window_s: float) -> list[RawSeries]:
        """Return the samples of the last `window_s` seconds by the server's clock."""
        data = self._query(f"{selector}[{max(1, round(window_s * 1e3))}ms]", None)
        return [series for series in parse_series(data) if len(series.times) and not series.is_histogram]

    def instant(self, expression: str) -> list[tuple[Labels, float]]:
        """Return the current values of an expression with their labels."""
        data = self._query(expression, None)
        if isinstance(data, Mapping) and data.get("resultType") == "scalar":
            return [({}, float(data["result"][1]))]
        return [(item.get("metric", {}), float(item["value"][1])) for item in _get_result(data, "vector")]

    def _windows(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> Iterator[RawSeries]:
        step_ms, at_ms = _FIRST_STEP_MS, start_ms
        while at_ms < end_ms:
            until_ms = min(at_ms + step_ms, end_ms)
            try:
                series = self._range(matcher, families, at_ms, until_ms)
            except PlatformError as error:
                if not is_too_big(error):
                    raise
                if until_ms - at_ms > _MIN_STEP_MS:
                    step_ms = max(_MIN_STEP_MS, (until_ms - at_ms) // 2)
                    continue
                if len(families) > 1:
                    half = len(families) // 2
                    yield from self._windows(matcher, families[:half], at_ms, end_ms)
                    yield from self._windows(matcher, families[half:], at_ms, end_ms)
                    return
                raise PlatformError(
                    f"{self._endpoint.name} cannot return one second of {families[0]} ({error}); raise its limit of "
                    "samples per query"
                ) from None
            yield from series
            count = sum(_count_samples(piece) for piece in series)
            growth = self._samples_per_response / max(count, 1)
            step_ms = int((until_ms - at_ms) * min(max(growth, 0.25), 4.0))
            step_ms = min(max(step_ms, _MIN_STEP_MS), _MAX_STEP_MS)
            at_ms = until_ms

    def _range(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> list[RawSeries]:
        """Return the samples of `[start, end)`; servers differ in whether a range includes its start."""
        selector = f"{{__name__=~{match_any(families)},{matcher}}}[{end_ms - start_ms}ms]"
        selected = []
        for series in parse_series(self._query(selector, end_ms - 1)):
            times = series.times // _MS_NS
            is_inside = (times >= start_ms) & (times < end_ms)
            if is_inside.any():
                selected.append(series.select(is_inside))
        return selected

    def _query(self, expression: str, at_ms: int | None) -> Any:
        params = {"query": expression} | ({} if at_ms is None else {"time": _seconds(at_ms)})
        return self._data("/api/v1/query", params)

    def _data(self, path: str, params: Mapping[str, str | Sequence[str]]) -> Any:
        response = self._endpoint.get(path, params)
        if not isinstance(response, Mapping) or response.get("status") != "success":
            reason = response.get("error", "no success") if isinstance(response, Mapping) else "not an object"
            raise PlatformError(f"{self._endpoint.name} rejected {path}: {reason}")
        warnings = response.get("warnings")
        if warnings:
            raise TruncatedResponse(f"{self._endpoint.name} sent a partial response to {path}: {warnings[0]}")
        return response.get("data")


def parse_series(data: Any) -> list[RawSeries]:
    """Return the series of the response to a range selector, including NaN and native histograms."""
    series = []
    for item in _get_result(data, "matrix"):
        if item.get("values"):
            series.append(read_pairs(item["metric"], item["values"]))
        if item.get("histograms"):
            series.append(read_pairs(item["metric"], item["histograms"], histograms=True))
    return series


def _count_samples(series: RawSeries) -> int:
    """Return how much a series counts towards the server's sample limit, where each bucket counts as a sample."""
    if not series.is_histogram:
        return len(series.times)
    return sum(2 + len(item.get("buckets") or ()) if isinstance(item, Mapping) else 1 for item in series.values)


def is_too_big(error: PlatformError) -> bool:
    """Return whether the response was too large, so that a smaller request may succeed."""
    text = str(error).lower()
    return isinstance(error, TruncatedResponse) or any(phrase in text for phrase in _TOO_BIG)


def _get_result(data: Any, kind: str) -> list[Any]:
    if not isinstance(data, Mapping) or data.get("resultType") != kind:
        raise TruncatedResponse(f"a Prometheus server did not respond with a {kind}")
    return data.get("result") or []


def batch_families(families: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield metric names in groups that fit into one selector."""
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


def duration_s(text: str) -> float:
    """Parse a duration in Prometheus notation and return it in seconds.

    >>> duration_s("1m30s")
    90.0
    """
    return sum(int(number) * _UNIT_S[unit] for number, unit in _DURATION.findall(text))


@dataclass(kw_only=True)
class Targets:
    """Current and earlier scrape targets, with the labels that scraping adds to their series."""

    labels: dict[tuple[str, str], Labels] = field(default_factory=dict)
    """Labels by job and instance."""
    names: dict[str, set[str]] = field(default_factory=dict)
    """Label names of all targets by job."""
    intervals_s: dict[str, float] = field(default_factory=dict)
    """Scrape intervals by scrape pool."""
    container_pool: str | None = None
    """Scrape pool of the kubelets' container metrics."""

    def update(self, endpoint: Endpoint) -> None:
        """Add the server's current targets; do nothing if the server lacks this API."""
        try:
            response = endpoint.get("/api/v1/targets", {"state": "active"})
            active = response["data"]["activeTargets"]
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
    """Return the scrape interval of containers or, if unknown, the server's default or the longest of any pool.

    Raises
    ------
    PlatformError
        The server reports none of them.
    """
    if targets.container_pool in targets.intervals_s:
        return targets.intervals_s[targets.container_pool]
    with contextlib.suppress(PlatformError, KeyError, TypeError, yaml.YAMLError):
        config = yaml.safe_load(endpoint.get("/api/v1/status/config")["data"]["yaml"])
        return duration_s(str(config["global"]["scrape_interval"]))
    if targets.intervals_s:
        return max(targets.intervals_s.values())
    raise PlatformError(f"{endpoint.name} shows no scrape interval in its targets or its configuration")


def read_metric_types(endpoint: Endpoint) -> MetricTypes:
    """Read the types of metrics from a server; if it has none, they are inferred from metric names."""
    try:
        return MetricTypes(endpoint.get("/api/v1/metadata")["data"] or {})
    except (PlatformError, KeyError, TypeError):
        return MetricTypes({})
