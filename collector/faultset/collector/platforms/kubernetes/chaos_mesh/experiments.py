"""What Chaos Mesh is asked to do: a pure mapping from disturbances of a pod to its kinds of objects.

Objects of Chaos Mesh are called experiments there. Their `spec` cannot be changed once they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.api.impairments import (
    Abort,
    Bandwidth,
    Delay,
    Hold,
    Impairment,
    Loss,
    Partition,
    Reset,
)
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.namespaces import MANAGED
from faultset.core.errors import UsageError

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
