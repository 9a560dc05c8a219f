"""Experiments of Chaos Mesh: what they are, how they begin, what their state says, and how they end."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.impairments import Abort, Bandwidth, Delay, Hold, Impairment, Loss, Partition, Reset
from faultset.collector.platforms.kubernetes.client import MERGE_PATCH, Api, NotFound, path_of
from faultset.collector.platforms.kubernetes.namespaces import MANAGED
from faultset.collector.platforms.objects import Object
from faultset.core.errors import PlatformError, UsageError

API_VERSION = "chaos-mesh.org/v1alpha1"
RESOURCES = f"/apis/{API_VERSION}"
PLURALS = {kind: kind.lower() for kind in ("PodChaos", "NetworkChaos", "HTTPChaos")}
"""Kinds that are made here, with the names of their resources."""
UNAVAILABLE = 503
BURST_BYTES = 3200
"""Two packets of Ethernet: a bucket that holds less than one lets none pass."""
QUEUE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class ChaosExperiment:
    """What one object of Chaos Mesh does.

    Attributes
    ----------
    kind
        Its kind.
    spec
        Its specification, without the pod and the duration.
    """

    kind: str
    spec: Mapping[str, Any]


KILLED_POD = ChaosExperiment(kind="PodChaos", spec={"action": "pod-kill", "gracePeriod": 0})
"""Deletes the pod without grace, once."""
FAILED_POD = ChaosExperiment(kind="PodChaos", spec={"action": "pod-failure"})
"""Gives the pod's containers an image that does nothing, as long as it lasts."""


def killed_container(container: str) -> ChaosExperiment:
    """Return what kills the main process of a container, once."""
    return ChaosExperiment(kind="PodChaos", spec={"action": "container-kill", "containerNames": [container]})


def experiment_of(impairment: Impairment, pod: Object) -> ChaosExperiment:
    """Return what impairs a pod.

    >>> experiment_of(Loss(probability=0.125), {}).spec["loss"]
    {'loss': '12.5', 'correlation': '0'}

    Parameters
    ----------
    pod
        The pod; requests are impaired on the first port of its first container.

    Raises
    ------
    UsageError
        Chaos Mesh cannot do it.
    """
    if impairment.changes:
        raise UsageError(
            "an experiment of Chaos Mesh acts with the same strength all the time, but the fault is to change; "
            "use --schedule constant with it"
        )
    match impairment:
        case Loss():
            loss = {"loss": _percent(impairment.probability), "correlation": "0"}
            return _of_network("loss", loss=loss)
        case Delay():
            latency, jitter = _duration(impairment.latency_s), _duration(impairment.jitter_s)
            return _of_network("delay", delay={"latency": latency, "jitter": jitter, "correlation": "0"})
        case Bandwidth():
            rate = f"{max(1, round(impairment.bytes_per_s))}bps"  # in Chaos Mesh bps are bytes a second
            bandwidth = {"rate": rate, "limit": QUEUE_BYTES, "buffer": BURST_BYTES}
            return _of_network("bandwidth", bandwidth=bandwidth)
        case Partition():
            return ChaosExperiment(kind="NetworkChaos", spec={"action": "partition", "direction": "both"})
        case Abort() | Reset() | Hold():
            return _of_requests(impairment, pod)


def manifest(
    experiment: ChaosExperiment,
    *,
    name: str,
    namespace: str,
    pod: str,
    pod_namespace: str,
    duration_s: float | None = None,
) -> Object:
    """Return the object that does something to one pod.

    Parameters
    ----------
    namespace
        Where the object lies, which need not be the pod's.
    duration_s
        After how long it ends by itself; None for what happens once.
    """
    lasting = {} if duration_s is None else {"duration": _duration(duration_s)}
    return {
        "apiVersion": API_VERSION,
        "kind": experiment.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": dict(MANAGED)},
        "spec": {
            **experiment.spec,
            "mode": "all",
            "selector": {"namespaces": [pod_namespace], "pods": {pod_namespace: [pod]}},
            **lasting,
        },
    }


def path_of_experiment(kind: str, namespace: str, name: str | None = None) -> str:
    """Return the path of a kind's experiments in a namespace, or of one of them."""
    path = f"{RESOURCES}/namespaces/{namespace}/{PLURALS[kind]}"
    return path if name is None else f"{path}/{name}"


def _of_network(action: str, **details: Any) -> ChaosExperiment:
    return ChaosExperiment(kind="NetworkChaos", spec={"action": action, "direction": "to", **details})


def _of_requests(impairment: Abort | Reset | Hold, pod: Object) -> ChaosExperiment:
    if impairment.share < 1 or impairment.caller:
        raise UsageError(
            "Chaos Mesh impairs all requests to a pod or to one of its paths, neither a share of them nor those of one "
            f"caller, but wanted are {100 * impairment.share:g} % of those of {impairment.caller or 'all callers'}; "
            "use the embedded platform for that"
        )
    ports = [port["containerPort"] for port in pod["spec"]["containers"][0].get("ports") or ()]
    if not ports:
        raise UsageError(
            f"the first container of pod {pod['metadata']['name']} declares no port whose requests Chaos Mesh could "
            "impair; declare one, or choose a fault of packets such as network-partition"
        )
    match impairment:
        case Abort():
            act: dict[str, Any] = {"target": "Response", "replace": {"code": UNAVAILABLE}}
        case Reset():
            act = {"target": "Request", "abort": True}
        case Hold():
            act = {"target": "Request", "delay": _duration(impairment.latency_s)}
    path = {"path": impairment.path} if impairment.path else {}
    return ChaosExperiment(kind="HTTPChaos", spec={**act, "port": ports[0], **path})


def _percent(share: float) -> str:
    return f"{100 * share:g}"


def _duration(seconds: float) -> str:
    """Write a duration as Go reads it.

    >>> _duration(0.0345), _duration(180)
    ('34.5ms', '180s')
    """
    return f"{round(seconds)}s" if seconds >= 1 and seconds == round(seconds) else f"{round(1e3 * seconds, 3):.10g}ms"


_LONGEST = 300


def is_injected(experiment: Object) -> bool:
    """Say whether the experiment acts on all that it selects.

    >>> is_injected({"status": {"conditions": [{"type": "AllInjected", "status": "True"}]}})
    False

    It must have selected something:

    >>> said = [{"type": "Selected", "status": "True"}, {"type": "AllInjected", "status": "True"}]
    >>> is_injected({"status": {"conditions": said}})
    True
    """
    held = {one["type"] for one in _status(experiment).get("conditions") or () if one.get("status") == "True"}
    return {"Selected", "AllInjected"} <= held


def failure_of(experiment: Object) -> str:
    """Return why the experiment does not act, or does not end, in the words of Chaos Mesh; empty when it says nothing.

    The newest failure of an injection or a removal counts, then what a condition gives as its reason.
    """
    failed = [event for record in _records(experiment) for event in record.get("events") or () if _is_failure(event)]
    newest = max(failed, key=lambda event: str(event.get("timestamp") or ""), default=None)
    if newest is not None:
        return _one_line(newest["message"])
    conditions = _status(experiment).get("conditions") or ()
    reasons = [f"{one['type']}: {one['reason']}" for one in conditions if one.get("reason")]
    return _one_line("; ".join(reasons))


def disturbed_pods(experiment: Object) -> list[str]:
    """Return the names of the pods on which the experiment acts, or may act."""
    acting = [record["id"] for record in _records(experiment) if str(record.get("phase", "")).startswith("Injected")]
    return sorted({identity.split("/")[1] for identity in acting if "/" in identity})


def selected_pods(experiment: Object) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of the pods that the experiment names."""
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
    return " ".join(text.split())[:_LONGEST]


INJECTION_TIMEOUT_S = 20.0
REMOVAL_TIMEOUT_S = 20.0
POD_RESOURCES = ("podnetworkchaos", "podhttpchaos")
"""What Chaos Mesh writes for a single pod; a failing rule in it makes every later experiment on the pod fail."""
_POLL_S = 0.3

logger = logging.getLogger(__name__)


def inject(api: Api, wanted: Object, *, timeout_s: float = INJECTION_TIMEOUT_S) -> Object:
    """Make an experiment and return it once it acts.

    Raises
    ------
    PlatformError
        Chaos Mesh refuses it, or does not inject it in time; nothing of it is left then.
    """
    kind, namespace, name = wanted["kind"], wanted["metadata"]["namespace"], wanted["metadata"]["name"]
    api.post(path_of_experiment(kind, namespace), wanted)
    try:
        return _await_injection(api, path_of_experiment(kind, namespace, name), timeout_s)
    except BaseException:
        with contextlib.suppress(PlatformError):
            remove(api, [wanted])
        raise


def remove(api: Api, experiments: Iterable[Object], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Remove experiments and wait until what they do has ended; those that are gone already are passed over.

    The finalizers of one that does not go in time are taken away, with what Chaos Mesh has written for its pods. Pods
    that it may still disturb then are deleted, and their owners replace them.
    """
    leaving: list[str] = []
    for one in experiments:
        path = path_of_experiment(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"])
        try:
            api.call("DELETE", path)
        except NotFound:
            continue
        leaving.append(path)
    deadline = time.monotonic() + timeout_s
    for path in leaving:
        while (found := _find(api, path)) is not None:
            if time.monotonic() > deadline:
                _take_away(api, path, found)
                break
            time.sleep(_POLL_S)


def remove_all(api: Api, namespace: str, *, timeout_s: float = REMOVAL_TIMEOUT_S) -> int:
    """Remove all experiments of ours that lie in a namespace; return how many there were."""
    selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in MANAGED.items())}
    found: list[Object] = []
    for kind in PLURALS:
        try:
            items = api.get(path_of_experiment(kind, namespace), selector)["items"]
        except NotFound:
            continue
        found += [{**item, "kind": kind} for item in items]
    remove(api, found, timeout_s=timeout_s)
    return len(found)


def _await_injection(api: Api, path: str, timeout_s: float) -> Object:
    deadline = time.monotonic() + timeout_s
    while True:
        found = api.get(path)
        if is_injected(found):
            return found
        if time.monotonic() > deadline:
            said = failure_of(found) or "it says nothing about it; look at the logs of its controller and daemons"
            pods = ", ".join(name for _, name in selected_pods(found))
            action = " ".join(filter(None, [found["kind"], found["spec"].get("action")]))
            raise PlatformError(f"Chaos Mesh did not inject {action} into {pods} within {timeout_s:g} s: {said}")
        time.sleep(_POLL_S)


def _take_away(api: Api, path: str, found: Object) -> None:
    pods = disturbed_pods(found)
    logger.warning(
        "Chaos Mesh did not end %s (%s); its finalizers are taken away%s",
        found["metadata"]["name"],
        failure_of(found) or "no reason is given",
        f" and the pods {', '.join(pods)} are replaced" if pods else "",
    )
    with contextlib.suppress(NotFound):
        api.call("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    for namespace, pod in selected_pods(found):
        for plural in POD_RESOURCES:
            with contextlib.suppress(NotFound):
                api.call("DELETE", f"{RESOURCES}/namespaces/{namespace}/{plural}/{pod}")
        if pod in pods:
            with contextlib.suppress(NotFound):
                api.call("DELETE", path_of("Pod", namespace, pod), body={"gracePeriodSeconds": 1})


def _find(api: Api, path: str) -> Object | None:
    try:
        return api.get(path)
    except NotFound:
        return None
