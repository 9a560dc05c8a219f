"""Raw samples of a Prometheus server: range selectors, never `query_range`.

`query_range` would resample on a grid of its own and keep a dead pod's last value for five minutes. A range selector
gives what was scraped, with the time at which it was. Prometheus leaves staleness markers out of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.collector.platforms.kubernetes.telemetry.endpoints import CutAnswer, Endpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus_series import (
    Labels,
    Named,
    RawSeries,
    classic_histogram,
    read_pairs,
)
from faultset.collector.sources.kube_states import TERMINATED_REASONS, WAITING_REASONS
from faultset.collector.sources.metric_store import MetricWindow
from faultset.collector.sources.series import SeriesKey, canonical_labels
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


Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

ENDPOINT_EXISTS = "kube_endpoint_info"
"""Family that tells of an Endpoints object even when it has no address."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The samples of one row name in order of time."""

    series: SeriesKey
    times: Times
    values: Values


def merged(found: Iterable[Named]) -> list[Samples]:
    """Return one entry for each name: copies of a series once, parts of a value added up."""
    groups: dict[SeriesKey, dict[tuple[str, ...], list[Named]]] = {}
    for one in found:
        groups.setdefault(one.series, {}).setdefault(one.part, []).append(one)
    made = []
    for series, parts in groups.items():
        pieces = [_newest(copies) for copies in parts.values()]
        times, values = pieces[0] if len(pieces) == 1 else _added_up(pieces)
        made.append(Samples(series=series, times=times, values=values))
    return made


def _newest(copies: Sequence[Named]) -> tuple[Times, Values]:
    """Return the samples of copies of one series; where several run at the same time, those of the latest to begin.

    A container that restarts leaves its old series for a moment, and two scrapers may read the same container.
    """
    if len(copies) == 1:
        return copies[0].raw.times, copies[0].raw.values
    ordered = sorted(copies, key=lambda one: (one.raw.times[0], one.raw.times[-1], sorted(one.raw.labels.items())))
    times, values = ordered[-1].raw.times, ordered[-1].raw.values
    for one in reversed(ordered[:-1]):
        older = one.raw
        kept = (older.times < times[0]) | (older.times > times[-1])
        times, values = np.concatenate([older.times[kept], times]), np.concatenate([older.values[kept], values])
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
    return times, values


def _added_up(pieces: Sequence[tuple[Times, Values]]) -> tuple[Times, Values]:
    times, place = np.unique(np.concatenate([times for times, _ in pieces]), return_inverse=True)
    totals = np.zeros(len(times))
    np.add.at(totals, place, np.concatenate([values for _, values in pieces]))
    return times, totals


def with_absent_states(found: Iterable[Samples]) -> list[Samples]:
    """Write 0 for the states that kube-state-metrics leaves out while they do not hold.

    It has no series for a reason that is not the container's, and none for the addresses of a Service without any.
    """
    by_metric: dict[str, dict[SeriesKey, Samples]] = {}
    for one in found:
        by_metric.setdefault(one.series.metric, {})[one.series] = one
    for rule in (_addresses, _waiting, _terminated, _unschedulable):
        for series, times in rule(by_metric):
            family = by_metric.setdefault(series.metric, {})
            present = family.get(series)
            if present is None:
                family[series] = Samples(series=series, times=times, values=np.zeros(len(times)))
                continue
            missing = np.setdiff1d(times, present.times, assume_unique=True)
            together = np.concatenate([present.times, missing])
            order = np.argsort(together, kind="stable")
            values = np.concatenate([present.values, np.zeros(len(missing))])
            family[series] = Samples(series=series, times=together[order], values=values[order])
    by_metric.pop(ENDPOINT_EXISTS, None)
    return [one for family in by_metric.values() for one in family.values()]


_Known = dict[str, dict[SeriesKey, Samples]]
_Absent = Iterator[tuple[SeriesKey, Times]]


def _addresses(known: _Known) -> _Absent:
    for series, one in known.get(ENDPOINT_EXISTS, {}).items():
        endpoint = json.loads(series.labels).get("endpoint")
        for ready in ("false", "true"):
            labels = canonical_labels({"endpoint": endpoint, "ready": ready})
            yield SeriesKey(series.service, None, None, "kube_endpoint_address", labels, "gauge"), one.times


def _waiting(known: _Known) -> _Absent:
    yield from _reasons(known, "kube_pod_container_status_waiting", "_reason", WAITING_REASONS)


def _terminated(known: _Known) -> _Absent:
    metric = "kube_pod_container_status_last_terminated_reason"
    yield from _reasons(known, "kube_pod_container_status_ready", metric, TERMINATED_REASONS)


def _reasons(known: _Known, base: str, metric: str, reasons: Sequence[str]) -> _Absent:
    name = base + metric if metric.startswith("_") else metric
    for series, one in known.get(base, {}).items():
        for reason in reasons:
            labels = canonical_labels({"reason": reason})
            yield series._replace(metric=name, labels=labels, kind="gauge"), one.times


def _unschedulable(known: _Known) -> _Absent:
    running = canonical_labels({"phase": "Running"})
    for series, one in known.get("kube_pod_status_phase", {}).items():
        if series.labels == running:
            yield series._replace(metric="kube_pod_status_unschedulable", labels="{}"), one.times


def rows(found: Sequence[Samples]) -> pa.Table:
    """Return the rows of the metrics table in order of time."""
    numbers = np.repeat(np.arange(len(found), dtype=np.int32), [len(one.times) for one in found])
    times = np.concatenate([one.times for one in found]) if found else np.empty(0, np.int64)
    values = np.concatenate([one.values for one in found]) if found else np.empty(0)
    return MetricWindow(times, numbers, values, tuple(one.series for one in found)).table({})
