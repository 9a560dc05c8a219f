"""Series as a Prometheus server names them, and native histograms as the series of classic ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.collector.platforms.kubernetes.impairer import EPHEMERAL
from faultset.collector.platforms.kubernetes.telemetry.prometheus_source import MetricTypes, Targets
from faultset.collector.sources.series import SeriesKey, canonical_labels

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
