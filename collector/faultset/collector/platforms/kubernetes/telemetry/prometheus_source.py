"""The source of metrics on a cluster, from a Prometheus server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus_samples import (
    SampleReader,
    Targets,
    match_any,
    quote,
    read_metric_types,
    scrape_interval_s,
)
from faultset.collector.platforms.kubernetes.telemetry.prometheus_series import (
    ENDPOINT_EXISTS,
    Naming,
    add_absent_states,
    build_table,
    carries_signal,
    merge_series,
)
from faultset.collector.sources.metric_store import SeriesKey
from faultset.datasets.format.schemas import TIME
from faultset.datasets.telemetry_formats.prometheus import Exemplar, MetricTypes, RawSeries

GAUGE_HISTOGRAM = "it is a native histogram of current values, whose counts are not cumulative"
_LATE_S = 12.0
_EXEMPLAR_WAIT_S = 20.0

_RECENT_SCHEMA = pa.schema([pa.field("time", TIME), pa.field("value", pa.float64())])


class PrometheusSource:
    """The source of metrics: raw samples with their scrape times, including deleted pods.

    Parameters
    ----------
    endpoint
        The server.
    namespace
        The application's namespace.
    service_of_pod
        Returns the workload of a pod, which may have been deleted.
    service_of_object
        Returns the workload of an object by kind and name.
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
