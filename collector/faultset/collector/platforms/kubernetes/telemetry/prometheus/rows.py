"""From named series to rows: copies merged, parts added up, states that do not hold written as 0."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.collector.platforms.kubernetes.telemetry.prometheus.series import Named
from faultset.collector.sources.metric_store import (
    TERMINATED_REASONS,
    WAITING_REASONS,
    MetricWindow,
    SeriesKey,
    canonical_labels,
)

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
