"""The source of metrics on a cluster: raw samples from a Prometheus server, read with range selectors.

`query_range` resamples to a grid and repeats a deleted pod's last value for five minutes. A range selector returns the
samples as they were scraped, with their times and without staleness markers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, TruncatedResponse
from faultset.collector.platforms.kubernetes.telemetry.prometheus_series import (
    ENDPOINT_EXISTS,
    Naming,
    Targets,
    add_absent_states,
    build_table,
    carries_signal,
    merge_series,
    scrape_interval_s,
)
from faultset.collector.sources.stores import SeriesKey
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import TIME
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
        names = self._request_data(
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
        return self._read_windows(matcher, families, start_ns // _MS_NS, -(-end_ns // _MS_NS))

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
        for series in self._request_data("/api/v1/query_exemplars", params) or ():
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

    def _read_windows(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> Iterator[RawSeries]:
        step_ms, at_ms = _FIRST_STEP_MS, start_ms
        while at_ms < end_ms:
            until_ms = min(at_ms + step_ms, end_ms)
            try:
                series = self._read_range(matcher, families, at_ms, until_ms)
            except PlatformError as error:
                if not is_too_big(error):
                    raise
                if until_ms - at_ms > _MIN_STEP_MS:
                    step_ms = max(_MIN_STEP_MS, (until_ms - at_ms) // 2)
                    continue
                if len(families) > 1:
                    half = len(families) // 2
                    yield from self._read_windows(matcher, families[:half], at_ms, end_ms)
                    yield from self._read_windows(matcher, families[half:], at_ms, end_ms)
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

    def _read_range(self, matcher: str, families: Sequence[str], start_ms: int, end_ms: int) -> list[RawSeries]:
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
        return self._request_data("/api/v1/query", params)

    def _request_data(self, path: str, params: Mapping[str, str | Sequence[str]]) -> Any:
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


def read_metric_types(endpoint: Endpoint) -> MetricTypes:
    """Read the types of metrics from a server; if it has none, they are inferred from metric names."""
    try:
        return MetricTypes(endpoint.get("/api/v1/metadata")["data"] or {})
    except (PlatformError, KeyError, TypeError):
        return MetricTypes({})


GAUGE_HISTOGRAM = "it is a native histogram of current values, whose counts are not cumulative"
_LATE_S = 12.0
_EXEMPLAR_WAIT_S = 20.0

_RECENT_SCHEMA = pa.schema([pa.field("time", TIME), pa.field("value", pa.float64())])


class PrometheusSource:
    """The source of metrics: raw samples with their scrape times, including deleted pods.

    Parameters
    ----------
    pods_seen
        Returns the names of all pods, including deleted ones; `notes` names the pods without samples.
    """

    table = "metrics"

    def __init__(
        self,
        endpoint: Endpoint,
        namespace: str,
        *,
        service_of_pod: Callable[[str], str | None],
        service_of_object: Callable[[str, str], str | None],
        pods_seen: Callable[[], Iterable[str]],
    ):
        self._endpoint = endpoint
        self._namespace = namespace
        self._reader = SampleReader(endpoint)
        self._naming = Naming(namespace, service_of_pod=service_of_pod, service_of_object=service_of_object)
        self._pods_seen = pods_seen
        self._targets = Targets()
        self._interval_s: float | None = None
        self.notes: tuple[str, ...] = ()

    @property
    def interval_s(self) -> float:
        """Time between two scrapes of a container, from the server's configuration."""
        if self._interval_s is None:
            self._targets.update(self._endpoint)
            self._interval_s = scrape_interval_s(self._endpoint, self._targets)
        return self._interval_s

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `[start_ns, end_ns)` in time order.

        Exporters set timestamps some time before the scrape. A snapshot of a recent window therefore waits until late
        samples have arrived.

        Raises
        ------
        PlatformError
            The server refuses the request or is unreachable.
        """
        self._await_samples(end_ns)
        self._targets.update(self._endpoint)
        types = read_metric_types(self._endpoint)
        self._reader.unreadable.clear()
        raw = self._read_namespace(start_ns, end_ns, types) + self._read_volumes(start_ns, end_ns)
        samples = add_absent_states(merge_series(self._naming.name_series(raw, self._targets, types)))
        sampled_pods = {item.series.pod for item in samples}
        silent_pods = sorted(pod for pod in set(self._pods_seen()) if pod not in sampled_pods)
        self.notes = (
            *((f"Prometheus has no samples of the pods {', '.join(silent_pods)}",) if silent_pods else ()),
            *(f"{name} has no rows: {reason}" for name, reason in sorted(self._reader.unreadable.items())),
        )
        yield from build_table(samples).to_batches(max_chunksize=65_536)

    def exemplars(self, start_ns: int, end_ns: int) -> Iterator[Mapping[str, Any]]:
        """Yield the exemplars of `[start_ns, end_ns)` in time order, as rows of the table `exemplars`.

        Some exemplars appear only in the next scrape, so this method waits if the window is recent. The wait is shorter
        than the timeout of added sources.
        """
        self._await_samples(end_ns, late_s=2.0, max_delay_s=_EXEMPLAR_WAIT_S)
        self._targets.update(self._endpoint)
        types = read_metric_types(self._endpoint)
        rows = []
        for label in ("namespace", "exported_namespace"):
            matcher = f"{label}={quote(self._namespace)}"
            for labels, exemplars in self._reader.exemplars(matcher, start_ns, end_ns):
                raw = RawSeries(labels=labels, times=np.empty(0, np.int64), values=np.empty(0))
                for entry in self._naming.name_series([raw], self._targets, types):
                    rows += [_build_exemplar_row(entry.series, exemplar) for exemplar in exemplars]
        yield from sorted(rows, key=lambda row: row["time"])

    def recent(self, metric: str, pod: str, window_s: float) -> pa.Table:
        """Return the recent samples of a pod's metric in time order.

        If several series match, returns the one with the newest sample.

        Returns
        -------
        pa.Table
            time (nanoseconds, UTC) and value.
        """
        selector = f"{metric}{{{self._namespace_matcher()},pod={quote(pod)}}}"
        entries = self._naming.name_series(self._reader.latest(selector, window_s), self._targets, MetricTypes({}))
        samples = merge_series(entries)
        if not samples:
            return _RECENT_SCHEMA.empty_table()
        best = max(samples, key=lambda item: (item.times[-1], len(item.times)))
        return pa.table([pa.array(best.times, TIME), pa.array(best.values, pa.float64())], schema=_RECENT_SCHEMA)

    def clock_offset_s(self) -> float:
        """Return how many seconds the server's clock is ahead, to within half the response time."""
        before = time.time()
        server_s = self._reader.instant("time()")[0][1]
        return server_s - (before + time.time()) / 2

    def close(self) -> None:
        """Do nothing; may be called twice."""

    def _namespace_matcher(self) -> str:
        return f"namespace={quote(self._namespace)}"

    def _read_namespace(self, start_ns: int, end_ns: int, types: MetricTypes) -> list[RawSeries]:
        """Return the series of the namespace, including series whose namespace label was renamed during scraping."""
        series: list[RawSeries] = []
        for label in ("namespace", "exported_namespace"):
            matcher = f"{label}={quote(self._namespace)}"
            families = self._reader.families([matcher], start_ns, end_ns)
            gauges = [name for name in families if types.holds_gauges(name)]
            self._reader.unreadable |= dict.fromkeys(gauges, GAUGE_HISTOGRAM)
            signals = [name for name in families if carries_signal(name) or name == ENDPOINT_EXISTS]
            readable = [name for name in signals if name not in gauges]
            series += self._reader.series(matcher, readable, start_ns, end_ns)
        return series

    def _read_volumes(self, start_ns: int, end_ns: int) -> list[RawSeries]:
        """Return the series of the application's volumes, which have no namespace."""
        family = "kube_persistentvolume_status_phase"
        age = f"{max(1, round((time.time_ns() - start_ns) / 1e6))}ms"
        phases = self._reader.instant(f"count by (persistentvolume) (last_over_time({family}[{age}]))")
        names = sorted({labels["persistentvolume"] for labels, _ in phases if "persistentvolume" in labels})
        volumes = [name for name in names if self._naming.owns_volume(name)]
        if not volumes:
            return []
        return self._reader.series(f"persistentvolume=~{match_any(volumes)}", [family], start_ns, end_ns)

    def _await_samples(self, end_ns: int, *, late_s: float = _LATE_S, max_delay_s: float = float("inf")) -> None:
        delay_s = min(self.interval_s + late_s, max_delay_s)
        wait_s = (end_ns - time.time_ns()) / 1e9 + delay_s
        if wait_s > 0:
            time.sleep(min(wait_s, delay_s))


def _build_exemplar_row(series: SeriesKey, exemplar: Exemplar) -> dict[str, Any]:
    return {
        "time": exemplar.time_ns,
        "service": series.service,
        "pod": series.pod,
        "metric": series.metric,
        "labels": series.labels,
        "value": exemplar.value,
        "trace_id": exemplar.find_id("trace_id", "traceID"),
        "span_id": exemplar.find_id("span_id", "spanID"),
    }
