"""Convert series of a Prometheus server to rows of the metrics table."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

from faultset.collector.platforms.kubernetes.impairer import EPHEMERAL
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.collector.sources.stores import TERMINATED_REASONS, WAITING_REASONS, MetricWindow, SeriesKey
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.prometheus import Labels, MetricTypes, RawSeries, canonical_labels

_CONTAINER_LABELS = frozenset("cpu failure_type interface operation scope state tcp_state udp_state ulimit".split())
"""Labels of cAdvisor that describe the measurement rather than the container."""

_SCRAPE_LABELS = frozenset("namespace instance id job prometheus prometheus_replica metrics_path __name__".split())
_STATE_LOCATION_LABELS = _SCRAPE_LABELS | {"uid", "pod_uid", "node", "service", "endpoint"}
_SUMMED_LABELS = frozenset("ip port_name port_number port_protocol device major minor".split())
"""Labels that split a value by address or device; the values are summed."""

_NO_SIGNAL = re.compile(
    r".*:.*|ALERTS(_FOR_STATE)?|kube_.+_(info|labels|annotations|owner|ips|tolerations|ports|service_account|scheduler)"
    r"|kube_namespace_.+|kube_pod_restart_policy|kube_(configmap|secret)_.*|.+_metadata_resource_version"
    r"|kube_pod_spec_volumes_.+|.+_created|kube_pod_nodeselectors|kube_service_.+|kube_networkpolicy_.+"
)
"""Recording rules, alerts, and metrics that hold a description, a constant or a creation time."""
_SIGNAL_EXCEPTIONS = frozenset({"kube_pod_created"})

_KIND_BY_LABEL = {
    "cronjob": "CronJob",
    "daemonset": "DaemonSet",
    "deployment": "Deployment",
    "endpoint": "Endpoints",
    "horizontalpodautoscaler": "HorizontalPodAutoscaler",
    "ingress": "Ingress",
    "job": "Job",
    "persistentvolume": "PersistentVolume",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "poddisruptionbudget": "PodDisruptionBudget",
    "replicaset": "ReplicaSet",
    "resourcequota": "ResourceQuota",
    "statefulset": "StatefulSet",
}
"""Kinds of objects by the label that kube-state-metrics uses for them."""


def carries_signal(metric: str) -> bool:
    """Return whether a metric can change with the state of the application.

    >>> carries_signal("container_cpu_usage_seconds_total"), carries_signal("kube_pod_info")
    (True, False)
    """
    return metric in _SIGNAL_EXCEPTIONS or _NO_SIGNAL.fullmatch(metric) is None


@dataclass(frozen=True, kw_only=True)
class NamedSeries:
    """A series of the server with the key of its rows in the metrics table.

    Attributes
    ----------
    split
        Label values that distinguish series with the same key; the values of such series are summed.
    rank
        Preference among series of the same measurement; lower is better.
    """

    series: SeriesKey
    raw: RawSeries
    split: tuple[str, ...] = ()
    rank: int = 0


class Naming:
    """Assigns the series of a namespace to keys of the metrics table.

    Parameters
    ----------
    service_of_pod
        Returns the workload of a pod, which may have been deleted; None for pods of other applications.
    """

    def __init__(
        self,
        namespace: str,
        *,
        service_of_pod: Callable[[str], str | None],
        service_of_object: Callable[[str, str], str | None],
    ):
        self._namespace = namespace
        self._service_of_pod, self._service_of_object = service_of_pod, service_of_object

    def name_series(self, all_raw: Iterable[RawSeries], targets: Targets, types: MetricTypes) -> list[NamedSeries]:
        """Return the series with their keys; if several series have the same measurement, only the best one."""
        result = []
        for raw in all_raw:
            metric = raw.labels.get("__name__", "")
            if metric.startswith("container_"):
                entry = self._name_container(metric, raw, types)
            elif metric.startswith("kube_"):
                entry = self._name_state(metric, raw, targets, types)
            else:
                entry = self._name_pod(metric, raw, targets, types)
            if entry is not None:
                result.append(entry)
        return _fill_containers(_select_best(result))

    def strip_prefix(self, name: str) -> str:
        """Return the name of a volume without the prefix of its namespace."""
        return name.removeprefix(f"{self._namespace}-")

    def owns_volume(self, name: str) -> bool:
        """Return whether a volume belongs to the application."""
        return name.startswith(f"{self._namespace}-") or self._service_of_object("PersistentVolume", name) is not None

    def _name_container(self, metric: str, raw: RawSeries, types: MetricTypes) -> NamedSeries | None:
        labels = _restore_labels(raw.labels)
        pod, container = labels.get("pod") or labels.get("pod_name"), labels.get("container") or ""
        if container == EPHEMERAL:
            return None
        if labels.get("namespace") != self._namespace or not pod:
            return None
        row_labels = {name: value for name, value in labels.items() if name in _CONTAINER_LABELS}
        split = tuple(labels.get(name, "") for name in ("device", "major", "minor"))
        is_sandbox = container == "POD" or (not container and bool(labels.get("name")))
        if metric.startswith("container_network_"):
            if labels.get("interface") == "lo":
                return None
            rank = (0 if is_sandbox else 1) + (0 if labels.get("interface") == "eth0" else 2)
            container = ""
        elif is_sandbox:
            return None
        elif container:
            rank = 0 if "id" in labels else 1
        else:
            rank = 2
        series = SeriesKey(
            self._service_of_pod(pod),
            pod,
            container or None,
            metric,
            canonical_labels(row_labels),
            raw.kind or types.kind(metric, row_labels),
        )
        return NamedSeries(series=series, raw=raw, split=split, rank=rank)

    def _name_state(self, metric: str, raw: RawSeries, targets: Targets, types: MetricTypes) -> NamedSeries | None:
        kind = metric.split("_")[1]
        labels = _restore_labels(raw.labels)
        is_volume = kind == "persistentvolume"
        if not is_volume and labels.get("namespace") != self._namespace:
            return None
        added = _added_labels(raw.labels, targets)
        row_labels = {
            name: value
            for name, value in labels.items()
            if name == kind or not (name in _STATE_LOCATION_LABELS or added.get(name, _NO_VALUE) in (value, None))
        }
        pod = container = service = None
        if kind == "pod":
            pod = row_labels.pop("pod", None) or labels.get("pod")
            container_label = row_labels.pop("container", None) or labels.get("container")
            container = container_label if "_container_" in metric else None
            service = self._service_of_pod(pod) if pod else None
        else:
            for name in ("pod", "container"):
                row_labels.pop(name, None)
            name = row_labels.get(kind)
            if is_volume:
                if name is None or not self.owns_volume(name):
                    return None
                name = row_labels[kind] = self.strip_prefix(name)
            if name is not None and kind in _KIND_BY_LABEL:
                service = self._service_of_object(_KIND_BY_LABEL[kind], name)
        split = tuple(row_labels.pop(name) for name in sorted(_SUMMED_LABELS & row_labels.keys()))
        series = SeriesKey(
            service, pod, container, metric, canonical_labels(row_labels), raw.kind or types.kind(metric, row_labels)
        )
        return NamedSeries(series=series, raw=raw, split=split)

    def _name_pod(self, metric: str, raw: RawSeries, targets: Targets, types: MetricTypes) -> NamedSeries | None:
        labels = dict(raw.labels)
        if labels.get("namespace") != self._namespace:
            return None
        pod, container = labels.pop("pod", None), labels.pop("container", None)
        added = _added_labels(raw.labels, targets)
        row_labels = {
            name: value
            for name, value in labels.items()
            if not (name in _SCRAPE_LABELS or name == "pod_uid" or added.get(name, _NO_VALUE) in (value, None))
        }
        for name in [name for name in row_labels if name.startswith("exported_")]:
            row_labels[name.removeprefix("exported_")] = row_labels.pop(name)
        claim = row_labels.get("persistentvolumeclaim")
        service = self._service_of_pod(pod) if pod else None
        if pod is None and claim is not None:
            service = self._service_of_object("PersistentVolumeClaim", claim)
        series = SeriesKey(
            service,
            pod,
            container or None,
            metric,
            canonical_labels(row_labels),
            raw.kind or types.kind(metric, row_labels),
        )
        return NamedSeries(series=series, raw=raw)


_NO_VALUE = ""


def _restore_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the exporter's labels without the prefix `exported_`, which scraping adds on a conflict."""
    restored = {name: value for name, value in labels.items() if not name.startswith("exported_")}
    for name, value in labels.items():
        if name.startswith("exported_"):
            restored[name.removeprefix("exported_")] = value
    return restored


def _added_labels(labels: Mapping[str, str], targets: Targets) -> Mapping[str, str | None]:
    """Return the labels that scraping added; None for an unknown value."""
    job = labels.get("job", "")
    exact = targets.labels.get((job, labels.get("instance", "")))
    if exact is not None:
        return {name: value for name, value in exact.items() if f"exported_{name}" not in labels} | dict.fromkeys(
            ("instance", "job")
        )
    return dict.fromkeys(targets.names.get(job, ()))


def _select_best(entries: list[NamedSeries]) -> list[NamedSeries]:
    """Return the series of the best rank for each metric and pod."""
    ranks: dict[tuple[str, str | None], int] = {}
    for entry in entries:
        key = (entry.series.metric, entry.series.pod)
        ranks[key] = min(ranks.get(key, entry.rank), entry.rank)
    return [
        entry
        for entry in entries
        if entry.series.pod is None or entry.rank == ranks[entry.series.metric, entry.series.pod]
    ]


def _fill_containers(entries: list[NamedSeries]) -> list[NamedSeries]:
    """Set the container of a pod's application metrics if the pod has only one container."""
    containers: dict[str, set[str]] = {}
    for entry in entries:
        if entry.series.pod is not None and entry.series.container is not None:
            containers.setdefault(entry.series.pod, set()).add(entry.series.container)
    result = []
    for entry in entries:
        pod, metric = entry.series.pod, entry.series.metric
        if pod and entry.series.container is None and not metric.startswith(("container_", "kube_", "kubelet_")):
            names = containers.get(pod, set())
            if len(names) == 1:
                entry = NamedSeries(series=entry.series._replace(container=next(iter(names))), raw=entry.raw)
        result.append(entry)
    return result


Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

ENDPOINT_EXISTS = "kube_endpoint_info"
"""Metric that exists for every Endpoints object, even without addresses."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The samples of one key of the metrics table, in time order."""

    series: SeriesKey
    times: Times
    values: Values


def merge_series(entries: Iterable[NamedSeries]) -> list[Samples]:
    """Return one entry per key: merge copies of a series and sum split values."""
    groups: dict[SeriesKey, dict[tuple[str, ...], list[NamedSeries]]] = {}
    for entry in entries:
        groups.setdefault(entry.series, {}).setdefault(entry.split, []).append(entry)
    result = []
    for series, splits in groups.items():
        pieces = [_merge_copies(copies) for copies in splits.values()]
        times, values = pieces[0] if len(pieces) == 1 else _sum_pieces(pieces)
        result.append(Samples(series=series, times=times, values=values))
    return result


def _merge_copies(copies: Sequence[NamedSeries]) -> tuple[Times, Values]:
    """Return the samples of copies of a series; where copies overlap, the one that started last wins.

    Copies exist if the old series of a restarted container remains for a moment, or if two jobs scrape a container.
    """
    if len(copies) == 1:
        return copies[0].raw.times, copies[0].raw.values
    raws = [entry.raw for entry in copies]
    ordered = sorted(raws, key=lambda raw: (raw.times[0], raw.times[-1], sorted(raw.labels.items())))
    times, values = ordered[-1].times, ordered[-1].values
    for older in reversed(ordered[:-1]):
        is_outside = (older.times < times[0]) | (older.times > times[-1])
        times = np.concatenate([older.times[is_outside], times])
        values = np.concatenate([older.values[is_outside], values])
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
    return times, values


def _sum_pieces(pieces: Sequence[tuple[Times, Values]]) -> tuple[Times, Values]:
    times, index = np.unique(np.concatenate([times for times, _ in pieces]), return_inverse=True)
    totals = np.zeros(len(times))
    np.add.at(totals, index, np.concatenate([values for _, values in pieces]))
    return times, totals


def add_absent_states(all_samples: Iterable[Samples]) -> list[Samples]:
    """Add zeros for states that kube-state-metrics omits while they are false.

    kube-state-metrics reports only the current reason of a container, and nothing for a Service without addresses.
    """
    by_metric: dict[str, dict[SeriesKey, Samples]] = {}
    for samples in all_samples:
        by_metric.setdefault(samples.series.metric, {})[samples.series] = samples
    for rule in (_list_addresses, _list_waiting, _list_terminated, _list_unschedulable):
        for series, times in rule(by_metric):
            family = by_metric.setdefault(series.metric, {})
            existing = family.get(series)
            if existing is None:
                family[series] = Samples(series=series, times=times, values=np.zeros(len(times)))
                continue
            missing = np.setdiff1d(times, existing.times, assume_unique=True)
            all_times = np.concatenate([existing.times, missing])
            order = np.argsort(all_times, kind="stable")
            values = np.concatenate([existing.values, np.zeros(len(missing))])
            family[series] = Samples(series=series, times=all_times[order], values=values[order])
    by_metric.pop(ENDPOINT_EXISTS, None)
    return [samples for family in by_metric.values() for samples in family.values()]


_ByMetric = dict[str, dict[SeriesKey, Samples]]
_AbsentStates = Iterator[tuple[SeriesKey, Times]]


def _list_addresses(by_metric: _ByMetric) -> _AbsentStates:
    for series, samples in by_metric.get(ENDPOINT_EXISTS, {}).items():
        endpoint = json.loads(series.labels).get("endpoint")
        for ready in ("false", "true"):
            labels = canonical_labels({"endpoint": endpoint, "ready": ready})
            yield SeriesKey(series.service, None, None, "kube_endpoint_address", labels, "gauge"), samples.times


def _list_waiting(by_metric: _ByMetric) -> _AbsentStates:
    metric = "kube_pod_container_status_waiting_reason"
    yield from _list_reasons(by_metric, "kube_pod_container_status_waiting", metric, WAITING_REASONS)


def _list_terminated(by_metric: _ByMetric) -> _AbsentStates:
    metric = "kube_pod_container_status_last_terminated_reason"
    yield from _list_reasons(by_metric, "kube_pod_container_status_ready", metric, TERMINATED_REASONS)


def _list_reasons(by_metric: _ByMetric, base: str, metric: str, reasons: Sequence[str]) -> _AbsentStates:
    for series, samples in by_metric.get(base, {}).items():
        for reason in reasons:
            labels = canonical_labels({"reason": reason})
            yield series._replace(metric=metric, labels=labels, kind="gauge"), samples.times


def _list_unschedulable(by_metric: _ByMetric) -> _AbsentStates:
    running = canonical_labels({"phase": "Running"})
    for series, samples in by_metric.get("kube_pod_status_phase", {}).items():
        if series.labels == running:
            yield series._replace(metric="kube_pod_status_unschedulable", labels="{}"), samples.times


def build_table(all_samples: Sequence[Samples]) -> pa.Table:
    """Return the rows of the metrics table in time order."""
    lengths = [len(samples.times) for samples in all_samples]
    numbers = np.repeat(np.arange(len(all_samples), dtype=np.int32), lengths)
    times = np.concatenate([samples.times for samples in all_samples]) if all_samples else np.empty(0, np.int64)
    values = np.concatenate([samples.values for samples in all_samples]) if all_samples else np.empty(0)
    return MetricWindow(times, numbers, values, tuple(samples.series for samples in all_samples)).table({})


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
