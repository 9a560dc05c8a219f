"""Chaos Mesh experiments: manifests, injection, renewal, status and removal."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.impairments import Abort, Bandwidth, Delay, Hold, Impairment, Loss, Partition, Reset
from faultset.collector.platforms.kubernetes.client import MERGE_PATCH, Api, NotFound, build_path, label_selector
from faultset.collector.platforms.kubernetes.impairer import Impairer, get_uid
from faultset.collector.platforms.kubernetes.objects import MANAGED
from faultset.collector.platforms.objects import is_active
from faultset.core.errors import PlatformError, UsageError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

API_VERSION = "chaos-mesh.org/v1alpha1"
RESOURCES = f"/apis/{API_VERSION}"
PLURALS = {kind: kind.lower() for kind in ("PodChaos", "NetworkChaos", "HTTPChaos")}
"""Names of the API resources, by kind of experiment."""
UNAVAILABLE = 503
BURST_BYTES = 3200
"""Size of two Ethernet packets; a bucket smaller than one packet blocks all packets."""
QUEUE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class ChaosExperiment:
    """Kind and spec of an experiment, without its pod and duration."""

    kind: str
    spec: Mapping[str, Any]


KILLED_POD = ChaosExperiment(kind="PodChaos", spec={"action": "pod-kill", "gracePeriod": 0})
"""Deletes the pod once, without a grace period."""
FAILED_POD = ChaosExperiment(kind="PodChaos", spec={"action": "pod-failure"})
"""Replaces the images of the pod's containers with the pause image while the experiment lasts."""


def kill_container(container: str) -> ChaosExperiment:
    return ChaosExperiment(kind="PodChaos", spec={"action": "container-kill", "containerNames": [container]})


def build_experiment(impairment: Impairment, pod: Object) -> ChaosExperiment:
    """Return the experiment for an impairment of a pod.

    >>> build_experiment(Loss(probability=0.125), {}).spec["loss"]
    {'loss': '12.5', 'correlation': '0'}

    Parameters
    ----------
    pod
        The pod; request impairments use the first port of its first container.

    Raises
    ------
    UsageError
        Chaos Mesh does not support the impairment, or it needs a port and the pod declares none.
    """
    if impairment.changes:
        raise UsageError(
            "Chaos Mesh experiments have a constant intensity, but the fault's schedule varies it; use --schedule "
            "constant"
        )
    match impairment:
        case Loss():
            loss = {"loss": _percent(impairment.probability), "correlation": "0"}
            return _network_experiment("loss", loss=loss)
        case Delay():
            latency, jitter = _duration(impairment.latency_s), _duration(impairment.jitter_s)
            return _network_experiment("delay", delay={"latency": latency, "jitter": jitter, "correlation": "0"})
        case Bandwidth():
            rate = f"{max(1, round(impairment.bytes_per_s))}bps"  # Chaos Mesh's bps means bytes per second
            bandwidth = {"rate": rate, "limit": QUEUE_BYTES, "buffer": BURST_BYTES}
            return _network_experiment("bandwidth", bandwidth=bandwidth)
        case Partition():
            return ChaosExperiment(kind="NetworkChaos", spec={"action": "partition", "direction": "both"})
        case Abort() | Reset() | Hold():
            return _request_experiment(impairment, pod)


def build_manifest(
    experiment: ChaosExperiment,
    *,
    name: str,
    namespace: str,
    pod: str,
    pod_namespace: str,
    duration_s: float | None = None,
) -> Object:
    """Return the manifest of an experiment on a pod.

    Parameters
    ----------
    namespace
        Namespace of the experiment, which may differ from the pod's.
    duration_s
        Seconds until the experiment ends; None for experiments that act once.
    """
    duration = {} if duration_s is None else {"duration": _duration(duration_s)}
    return {
        "apiVersion": API_VERSION,
        "kind": experiment.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": dict(MANAGED)},
        "spec": {
            **experiment.spec,
            "mode": "all",
            "selector": {"namespaces": [pod_namespace], "pods": {pod_namespace: [pod]}},
            **duration,
        },
    }


def path_of_experiment(kind: str, namespace: str, name: str | None = None) -> str:
    """Return the API path of a kind's experiments in a namespace, or of one experiment."""
    path = f"{RESOURCES}/namespaces/{namespace}/{PLURALS[kind]}"
    return path if name is None else f"{path}/{name}"


def _network_experiment(action: str, **details: Any) -> ChaosExperiment:
    return ChaosExperiment(kind="NetworkChaos", spec={"action": action, "direction": "to", **details})


def _request_experiment(impairment: Abort | Reset | Hold, pod: Object) -> ChaosExperiment:
    if impairment.share < 1 or impairment.caller:
        raise UsageError(
            "Chaos Mesh can impair only all requests to a pod or a path, but the fault needs "
            f"{100 * impairment.share:g} % of the requests of {impairment.caller or 'all callers'}; use the embedded "
            "platform"
        )
    ports = [port["containerPort"] for port in pod["spec"]["containers"][0].get("ports") or ()]
    if not ports:
        raise UsageError(
            f"Chaos Mesh needs a port to impair requests, but the first container of pod {pod['metadata']['name']} "
            "declares none; declare one, or choose a packet fault such as network-partition"
        )
    match impairment:
        case Abort():
            effect: dict[str, Any] = {"target": "Response", "replace": {"code": UNAVAILABLE}}
        case Reset():
            effect = {"target": "Request", "abort": True}
        case Hold():
            effect = {"target": "Request", "delay": _duration(impairment.latency_s)}
    path = {"path": impairment.path} if impairment.path else {}
    return ChaosExperiment(kind="HTTPChaos", spec={**effect, "port": ports[0], **path})


def _percent(share: float) -> str:
    return f"{100 * share:g}"


def _duration(seconds: float) -> str:
    """Format a duration for Go.

    >>> _duration(0.0345), _duration(180)
    ('34.5ms', '180s')
    """
    return f"{round(seconds)}s" if seconds >= 1 and seconds == round(seconds) else f"{round(1e3 * seconds, 3):.10g}ms"


_MAX_REASON = 300


def is_injected(experiment: Object) -> bool:
    """Return whether the experiment acts on all selected pods.

    >>> is_injected({"status": {"conditions": [{"type": "AllInjected", "status": "True"}]}})
    False

    It must have selected a pod:

    >>> conditions = [{"type": "Selected", "status": "True"}, {"type": "AllInjected", "status": "True"}]
    >>> is_injected({"status": {"conditions": conditions}})
    True
    """
    conditions = _status(experiment).get("conditions") or ()
    return {"Selected", "AllInjected"} <= {item["type"] for item in conditions if item.get("status") == "True"}


def find_failure(experiment: Object) -> str:
    """Return Chaos Mesh's message for a failed injection or removal; empty if there is none.

    Uses the newest failure event or, if there is none, the reasons of conditions.
    """
    failures = [event for record in _records(experiment) for event in record.get("events") or () if _is_failure(event)]
    newest = max(failures, key=lambda event: str(event.get("timestamp") or ""), default=None)
    if newest is not None:
        return _one_line(newest["message"])
    conditions = _status(experiment).get("conditions") or ()
    reasons = [f"{item['type']}: {item['reason']}" for item in conditions if item.get("reason")]
    return _one_line("; ".join(reasons))


def disturbed_pods(experiment: Object) -> list[str]:
    """Return the names of the pods on which the experiment acts or may act."""
    records = [record for record in _records(experiment) if str(record.get("phase", "")).startswith("Injected")]
    return sorted({record["id"].split("/")[1] for record in records if "/" in record["id"]})


def selected_pods(experiment: Object) -> Iterator[tuple[str, str]]:
    """Yield the namespaces and names of the pods that the experiment selects."""
    pods: Mapping[str, list[str]] = experiment["spec"]["selector"].get("pods") or {}
    for namespace, names in pods.items():
        for name in names:
            yield namespace, name


def _status(experiment: Object) -> Mapping[str, Any]:
    return experiment.get("status") or {}


def _records(experiment: Object) -> list[dict[str, Any]]:
    return (_status(experiment).get("experiment") or {}).get("containerRecords") or []


def _is_failure(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "Failed" and bool(event.get("message"))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_REASON]


INJECTION_TIMEOUT_S = 20.0
REMOVAL_TIMEOUT_S = 20.0
POD_RESOURCES = ("podnetworkchaos", "podhttpchaos")
"""Chaos Mesh's objects for individual pods; an invalid rule in one makes all later experiments on the pod fail."""
_POLL_S = 0.3

logger = logging.getLogger(__name__)


def inject(api: Api, experiment: Object, *, timeout_s: float = INJECTION_TIMEOUT_S) -> Object:
    """Create an experiment and return it once it acts.

    Raises
    ------
    PlatformError
        Chaos Mesh refuses the experiment or does not inject it in time; the experiment is removed again.
    """
    kind, namespace, name = experiment["kind"], experiment["metadata"]["namespace"], experiment["metadata"]["name"]
    api.post(path_of_experiment(kind, namespace), experiment)
    try:
        return _await_injection(api, path_of_experiment(kind, namespace, name), timeout_s)
    except BaseException:
        with contextlib.suppress(PlatformError):
            remove(api, [experiment])
        raise


def remove(api: Api, experiments: Iterable[Object], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Remove experiments and wait until their effect has ended; missing experiments are skipped.

    If an experiment still exists after `timeout_s`, its finalizers and its objects for individual pods are removed, and
    pods that may still be disturbed are deleted, so that their owners replace them.
    """
    pending: list[str] = []
    for experiment in experiments:
        metadata = experiment["metadata"]
        path = path_of_experiment(experiment["kind"], metadata["namespace"], metadata["name"])
        if api.delete(path):
            pending.append(path)
    deadline = time.monotonic() + timeout_s
    for path in pending:
        while (experiment := api.find(path)) is not None:
            if time.monotonic() > deadline:
                _force_removal(api, path, experiment)
                break
            time.sleep(_POLL_S)


def remove_all(api: Api, namespace: str) -> int:
    """Remove all of our experiments in a namespace; return their number."""
    selector = {"labelSelector": label_selector(MANAGED)}
    experiments: list[Object] = []
    for kind in PLURALS:
        try:
            items = api.get(path_of_experiment(kind, namespace), selector)["items"]
        except NotFound:
            continue
        experiments += [{**item, "kind": kind} for item in items]
    remove(api, experiments, timeout_s=REMOVAL_TIMEOUT_S)
    return len(experiments)


def _await_injection(api: Api, path: str, timeout_s: float) -> Object:
    deadline = time.monotonic() + timeout_s
    while True:
        experiment = api.get(path)
        if is_injected(experiment):
            return experiment
        if time.monotonic() > deadline:
            reason = find_failure(experiment) or "no reason given; check the logs of its controller and daemons"
            pods = ", ".join(name for _, name in selected_pods(experiment))
            action = " ".join(filter(None, [experiment["kind"], experiment["spec"].get("action")]))
            raise PlatformError(f"Chaos Mesh did not inject {action} into {pods} within {timeout_s:g} s: {reason}")
        time.sleep(_POLL_S)


def _force_removal(api: Api, path: str, experiment: Object) -> None:
    pods = disturbed_pods(experiment)
    logger.warning(
        "Chaos Mesh did not end %s (%s); removing its finalizers%s",
        experiment["metadata"]["name"],
        find_failure(experiment) or "no reason given",
        f" and replacing the pods {', '.join(pods)}" if pods else "",
    )
    with contextlib.suppress(NotFound):
        api.call("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    for namespace, pod in selected_pods(experiment):
        for plural in POD_RESOURCES:
            api.delete(f"{RESOURCES}/namespaces/{namespace}/{plural}/{pod}")
        if pod in pods:
            api.delete(build_path("Pod", namespace, pod), {"gracePeriodSeconds": 1})


LEASE_S = 420.0
"""Duration of an experiment; shortly before its end, a new experiment replaces it."""
RENEWAL_AGE_S = 360.0
FAILURE_S = 3600.0
"""Maximum duration of a pod failure. It is never renewed, because a second experiment would store the pause image as
the original image."""


@dataclass(frozen=True, kw_only=True)
class _Active:
    pod: Object
    experiment: ChaosExperiment
    injected: Object
    since_s: float
    """Monotonic time of the injection."""

    @property
    def is_old(self) -> bool:
        return self.experiment is not FAILED_POD and time.monotonic() - self.since_s > RENEWAL_AGE_S


class ChaosMeshImpairer(Impairer):
    """Impairs the pods of a namespace with experiments in the control namespace.

    The duration of an experiment cannot be changed. To renew a lease, a new experiment starts before the old one is
    removed.

    Parameters
    ----------
    namespace
        The control namespace, which contains the experiments.
    app_namespace
        The application's namespace, which contains the pods.
    """

    def __init__(self, api: Api, namespace: str, app_namespace: str):
        super().__init__(api, namespace)
        self._app_namespace = app_namespace
        self._active: dict[str, _Active] = {}

    def close(self) -> None:
        """Stop renewing leases and remove all experiments; may be called twice."""
        super().close()
        with self._lock:
            self._active.clear()
            remove_all(self._api, self._namespace)

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, replacing an earlier impairment.

        Raises
        ------
        UsageError
            Chaos Mesh does not support the impairment.
        PlatformError
            Chaos Mesh refuses it or does not inject it in time.
        """
        self._start_experiment(pod, build_experiment(impairment, pod))

    def fail(self, pod: Object) -> None:
        """Replace the pod's images with the pause image until `lift`."""
        self._start_experiment(pod, FAILED_POD)

    def kill(self, pod: Object, container: str) -> None:
        self._run_once(pod, kill_container(container))

    def kill_pod(self, pod: Object) -> None:
        """Delete the pod without a grace period; raise PlatformError if that fails."""
        self._run_once(pod, KILLED_POD)

    def lift(self, pod: str) -> None:
        with self._lock:
            for uid, active in [*self._active.items()]:
                if pod in (uid, active.pod["metadata"]["name"]):
                    remove(self._api, [active.injected])
                    del self._active[uid]

    def impaired_packets(self, pod: Object) -> int:
        """Return 0, since Chaos Mesh does not count packets; see `evidence`."""
        return 0

    def evidence(self, pod: Object) -> str | None:
        """Return a sentence about the experiment that acts on a pod now; None if there is none."""
        with self._lock:
            active = self._active.get(get_uid(pod))
        if active is None:
            return None
        current = self._api.find(self._path(active.injected))
        if current is None or not is_injected(current):
            return None
        return f"{self._describe(active)} is injected into {pod['metadata']['name']}"

    def renew(self) -> None:
        """Replace experiments that end soon; remove experiments on deleted pods."""
        with self._lock:
            for uid, active in [*self._active.items()]:
                if not self._is_running(active.pod):
                    remove(self._api, [active.injected])
                    del self._active[uid]
                elif active.is_old:
                    self._start_experiment(active.pod, active.experiment)

    def _start_experiment(self, pod: Object, experiment: ChaosExperiment) -> None:
        with self._lock:
            since_s = time.monotonic()
            duration_s = FAILURE_S if experiment is FAILED_POD else LEASE_S
            injected = inject(self._api, self._build_manifest(pod, experiment, duration_s))
            before = self._active.get(get_uid(pod))
            self._active[get_uid(pod)] = _Active(pod=pod, experiment=experiment, injected=injected, since_s=since_s)
            if before is not None:
                remove(self._api, [before.injected])

    def _run_once(self, pod: Object, experiment: ChaosExperiment) -> None:
        with self._lock:
            remove(self._api, [inject(self._api, self._build_manifest(pod, experiment, None))])

    def _build_manifest(self, pod: Object, experiment: ChaosExperiment, duration_s: float | None) -> Object:
        return build_manifest(
            experiment,
            name=f"experiment-{secrets.token_hex(4)}",
            namespace=self._namespace,
            pod=pod["metadata"]["name"],
            pod_namespace=self._app_namespace,
            duration_s=duration_s,
        )

    def _is_running(self, pod: Object) -> bool:
        current = self._api.find(build_path("Pod", self._app_namespace, pod["metadata"]["name"]))
        return current is not None and get_uid(current) == get_uid(pod) and is_active(current)

    def _path(self, injected: Object) -> str:
        return path_of_experiment(injected["kind"], injected["metadata"]["namespace"], injected["metadata"]["name"])

    def _describe(self, active: _Active) -> str:
        return " ".join(filter(None, [active.experiment.kind, active.experiment.spec.get("action")]))
