"""What a Prometheus server says of itself: how often it scrapes, which labels it adds, the types of its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus_samples import (
    MetricTypes,
    RawSeries,
    SampleReader,
    Targets,
    one_of,
    quoted,
    scrape_interval_s,
)
from faultset.collector.platforms.kubernetes.telemetry.prometheus_series import (
    ENDPOINT_EXISTS,
    Naming,
    carries_signal,
    merged,
    rows,
    with_absent_states,
)
from faultset.datasets.format.schemas import TIME

GAUGE_HISTOGRAM = "it is a native histogram of present values, whose counts are not cumulative"
_LATE_S = 12.0
_READY_INTERVALS = 3.0
_RECENT = pa.schema([pa.field("time", TIME), pa.field("value", pa.float64())])


class PrometheusSource:
    """The table of metrics: raw samples with the times at which they were taken, also of pods that are gone.

    Parameters
    ----------
    endpoint
        The server.
    namespace
        Where the application runs.
    service_of_pod
        Workload of a pod, also of one that is gone.
    service_of_object
        Workload of an object, by kind and name.
    pods_seen
        Names of all pods that ever were; `notes` names those that the server does not know.
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
        """Time between two scrapes of a container, as the server says."""
        if self._interval_s is None:
            self._targets.learn(self._endpoint)
            self._interval_s = scrape_interval_s(self._endpoint, self._targets)
        return self._interval_s

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `[start_ns, end_ns)` in order of time.

        Exporters stamp their samples a while before they are scraped, so the end of a window that has only just
        passed is waited for.

        Raises
        ------
        PlatformError
            The server refuses or has gone.
        """
        self._await_samples_of(end_ns)
        self._targets.learn(self._endpoint)
        types = MetricTypes.asked(self._endpoint)
        self._reader.unreadable.clear()
        raw = self._of_namespace(start_ns, end_ns, types) + self._of_volumes(start_ns, end_ns)
        found = with_absent_states(merged(self._naming.named(raw, self._targets, types)))
        sampled = {one.series.pod for one in found}
        silent = sorted(pod for pod in set(self._pods_seen()) if pod not in sampled)
        self.notes = (
            *((f"Prometheus has no samples of the pods {', '.join(silent)}",) if silent else ()),
            *(f"{name} has no rows: {why}" for name, why in sorted(self._reader.unreadable.items())),
        )
        yield from rows(found).to_batches(max_chunksize=65_536)

    def recent(self, metric: str, pod: str, window_s: float) -> pa.Table:
        """Return the samples of one pod's metric in the last seconds, in order of time.

        Of a metric of containers it is the pod's only container, else the pod as a whole.

        Returns
        -------
        pa.Table
            time (nanoseconds, UTC) and value.
        """
        selector = f"{metric}{{{self._own()},pod={quoted(pod)}}}"
        named = self._naming.named(self._reader.latest(selector, window_s), self._targets, MetricTypes({}))
        found = merged(named)
        if not found:
            return _RECENT.empty_table()
        best = max(found, key=lambda one: (one.times[-1], len(one.times)))
        return pa.table([pa.array(best.times, TIME), pa.array(best.values, pa.float64())], schema=_RECENT)

    def clock_offset_s(self) -> float:
        """Return how far the server's clock is ahead of ours, in seconds; half the answer's time is its error."""
        before = time.time()
        server = self._reader.instant("time()")[0][1]
        return server - (before + time.time()) / 2

    def close(self) -> None:
        """Nothing is held; may be called twice."""

    def _own(self) -> str:
        return f"namespace={quoted(self._namespace)}"

    def _of_namespace(self, start_ns: int, end_ns: int, types: MetricTypes) -> list[RawSeries]:
        """Return the series of the namespace, also of those whose own label scraping had to move aside."""
        found: list[RawSeries] = []
        for label in ("namespace", "exported_namespace"):
            matcher = f"{label}={quoted(self._namespace)}"
            families = self._reader.families([matcher], start_ns, end_ns)
            gauges = [name for name in families if types.holds_gauges(name)]
            self._reader.unreadable |= dict.fromkeys(gauges, GAUGE_HISTOGRAM)
            signals = [name for name in families if carries_signal(name) or name == ENDPOINT_EXISTS]
            wanted = [name for name in signals if name not in gauges]
            found += self._reader.series(matcher, wanted, start_ns, end_ns)
        return found

    def _of_volumes(self, start_ns: int, end_ns: int) -> list[RawSeries]:
        """Return the series of the application's volumes, which belong to no namespace."""
        family = "kube_persistentvolume_status_phase"
        seen = self._reader.instant(f"count by (persistentvolume) (last_over_time({family}[{self._age(start_ns)}]))")
        mine = sorted({labels["persistentvolume"] for labels, _ in seen if "persistentvolume" in labels})
        mine = [name for name in mine if self._naming.owns_volume(name)]
        if not mine:
            return []
        return self._reader.series(f"persistentvolume=~{one_of(mine)}", [family], start_ns, end_ns)

    def _age(self, start_ns: int) -> str:
        return f"{max(1, round((time.time_ns() - start_ns) / 1e6))}ms"

    def _await_samples_of(self, end_ns: int) -> None:
        settled_ns = end_ns + round(1e9 * (self.interval_s + _LATE_S))
        wait_s = (settled_ns - time.time_ns()) / 1e9
        if wait_s > 0:
            time.sleep(min(wait_s, self.interval_s + _LATE_S))
