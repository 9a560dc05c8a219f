"""Series as a Prometheus server names them, and native histograms as the series of classic ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.collector.platforms.kubernetes.impairer import EPHEMERAL
from faultset.collector.platforms.kubernetes.telemetry.prometheus_samples import MetricTypes, RawSeries, Targets
from faultset.collector.sources.metric_store import (
    TERMINATED_REASONS,
    WAITING_REASONS,
    MetricWindow,
    SeriesKey,
    canonical_labels,
)

_CONTAINER_LABELS = frozenset("cpu failure_type interface operation scope state tcp_state udp_state ulimit".split())
"""Labels that cAdvisor gives to say what is measured, not where."""

_SCRAPE_LABELS = frozenset("namespace instance id job prometheus prometheus_replica metrics_path __name__".split())
_STATE_PLACE_LABELS = _SCRAPE_LABELS | {"uid", "pod_uid", "node", "service", "endpoint"}
_SUMMED_LABELS = frozenset("ip port_name port_number port_protocol device major minor".split())
"""Labels that split a value by address or device: their parts are added up."""

_NO_SIGNAL = re.compile(
    r".*:.*|ALERTS(_FOR_STATE)?|kube_.+_(info|labels|annotations|owner|ips|tolerations|ports|service_account|scheduler)"
    r"|kube_namespace_.+|kube_pod_restart_policy|kube_(configmap|secret)_.*|.+_metadata_resource_version"
    r"|kube_pod_spec_volumes_.+|.+_created|kube_pod_nodeselectors|kube_service_.+|kube_networkpolicy_.+"
)
"""Rules' results, alerts, and families that only describe: their value is always 1 or a time of creation."""
_KEPT = frozenset({"kube_pod_created"})

_KINDS = {
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
"""Label under which kube-state-metrics names an object, and the object's kind."""


def carries_signal(metric: str) -> bool:
    """Say whether a metric can change with the state of the application.

    >>> carries_signal("container_cpu_usage_seconds_total"), carries_signal("kube_pod_info")
    (True, False)
    """
    return metric in _KEPT or _NO_SIGNAL.fullmatch(metric) is None


@dataclass(frozen=True, kw_only=True)
class Named:
    """One series of the server under the name of its row.

    Attributes
    ----------
    part
        What tells apart series that are added up under one name.
    rank
        Preference among series that measure the same thing; lower is better.
    """

    series: SeriesKey
    raw: RawSeries
    part: tuple[str, ...] = ()
    rank: int = 0


class Naming:
    """Names the series of one namespace.

    Parameters
    ----------
    service_of_pod
        Workload of a pod, also of one that is gone; None for a stranger's.
    service_of_object
        Workload of an object, by kind and name.
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

    def named(self, found: Iterable[RawSeries], targets: Targets, types: MetricTypes) -> list[Named]:
        """Return the series that are rows, the best of those that measure the same thing."""
        made = []
        for raw in found:
            metric = raw.labels.get("__name__", "")
            if metric.startswith("container_"):
                one = self._of_container(metric, raw, types)
            elif metric.startswith("kube_"):
                one = self._of_state(metric, raw, targets, types)
            else:
                one = self._of_pod(metric, raw, targets, types)
            if one is not None:
                made.append(one)
        return _with_their_containers(_best(made))

    def volume(self, name: str) -> str:
        """Return the name of a volume without the prefix that keeps the volumes of several episodes apart."""
        return name.removeprefix(f"{self._namespace}-")

    def owns_volume(self, name: str) -> bool:
        """Say whether a volume belongs to the application."""
        return name.startswith(f"{self._namespace}-") or self._service_of_object("PersistentVolume", name) is not None

    def _of_container(self, metric: str, raw: RawSeries, types: MetricTypes) -> Named | None:
        labels = _unexported(raw.labels)
        pod, container = labels.get("pod") or labels.get("pod_name"), labels.get("container") or ""
        if container == EPHEMERAL:
            return None
        if labels.get("namespace") != self._namespace or not pod:
            return None
        kept = {name: value for name, value in labels.items() if name in _CONTAINER_LABELS}
        part = tuple(labels.get(name, "") for name in ("device", "major", "minor"))
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
            canonical_labels(kept),
            raw.kind or types.kind(metric, kept),
        )
        return Named(series=series, raw=raw, part=part, rank=rank)

    def _of_state(self, metric: str, raw: RawSeries, targets: Targets, types: MetricTypes) -> Named | None:
        about = metric.split("_")[1]
        labels = _unexported(raw.labels)
        is_volume = about == "persistentvolume"
        if not is_volume and labels.get("namespace") != self._namespace:
            return None
        added = _added(raw.labels, targets)
        kept = {
            name: value
            for name, value in labels.items()
            if name == about or not (name in _STATE_PLACE_LABELS or added.get(name, _ABSENT) in (value, None))
        }
        pod = container = service = None
        if about == "pod":
            pod = kept.pop("pod", None) or labels.get("pod")
            held = kept.pop("container", None) or labels.get("container")
            container = held if "_container_" in metric else None
            service = self._service_of_pod(pod) if pod else None
        else:
            for name in ("pod", "container"):
                kept.pop(name, None)
            name = kept.get(about)
            if is_volume:
                if name is None or not self.owns_volume(name):
                    return None
                name = kept[about] = self.volume(name)
            if name is not None and about in _KINDS:
                service = self._service_of_object(_KINDS[about], name)
        part = tuple(kept.pop(name) for name in sorted(_SUMMED_LABELS & kept.keys()))
        series = SeriesKey(
            service, pod, container, metric, canonical_labels(kept), raw.kind or types.kind(metric, kept)
        )
        return Named(series=series, raw=raw, part=part)

    def _of_pod(self, metric: str, raw: RawSeries, targets: Targets, types: MetricTypes) -> Named | None:
        labels = dict(raw.labels)
        if labels.get("namespace") != self._namespace:
            return None
        pod, container = labels.pop("pod", None), labels.pop("container", None)
        added = _added(raw.labels, targets)
        kept = {
            name: value
            for name, value in labels.items()
            if not (name in _SCRAPE_LABELS or name == "pod_uid" or added.get(name, _ABSENT) in (value, None))
        }
        for name in [name for name in kept if name.startswith("exported_")]:
            kept[name.removeprefix("exported_")] = kept.pop(name)
        claim = kept.get("persistentvolumeclaim")
        service = self._service_of_pod(pod) if pod else None
        if pod is None and claim is not None:
            service = self._service_of_object("PersistentVolumeClaim", claim)
        series = SeriesKey(
            service, pod, container or None, metric, canonical_labels(kept), raw.kind or types.kind(metric, kept)
        )
        return Named(series=series, raw=raw)


_ABSENT = ""


def _unexported(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels as the exporter gave them, where scraping had to move them aside."""
    made = {name: value for name, value in labels.items() if not name.startswith("exported_")}
    for name, value in labels.items():
        if name.startswith("exported_"):
            made[name.removeprefix("exported_")] = value
    return made


def _added(labels: Mapping[str, str], targets: Targets) -> Mapping[str, str | None]:
    """Return the labels that scraping added, with None for a value that is not known any more."""
    job = labels.get("job", "")
    exact = targets.labels.get((job, labels.get("instance", "")))
    if exact is not None:
        return {name: value for name, value in exact.items() if f"exported_{name}" not in labels} | dict.fromkeys(
            ("instance", "job")
        )
    return dict.fromkeys(targets.names.get(job, ()))


def _best(found: list[Named]) -> list[Named]:
    """Leave out what measures a thing less well than another series of the same metric and pod."""
    ranks: dict[tuple[str, str | None], int] = {}
    for one in found:
        key = (one.series.metric, one.series.pod)
        ranks[key] = min(ranks.get(key, one.rank), one.rank)
    return [one for one in found if one.series.pod is None or one.rank == ranks[one.series.metric, one.series.pod]]


def _with_their_containers(found: list[Named]) -> list[Named]:
    """Fill in the container of what a pod exports itself, where the pod has only one."""
    held: dict[str, set[str]] = {}
    for one in found:
        if one.series.pod is not None and one.series.container is not None:
            held.setdefault(one.series.pod, set()).add(one.series.container)
    made = []
    for one in found:
        pod, metric = one.series.pod, one.series.metric
        if pod and one.series.container is None and not metric.startswith(("container_", "kube_", "kubelet_")):
            names = held.get(pod, set())
            if len(names) == 1:
                one = Named(series=one.series._replace(container=next(iter(names))), raw=one.raw)
        made.append(one)
    return made


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
