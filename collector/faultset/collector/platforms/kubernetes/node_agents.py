"""Deploy agents on the nodes of a cluster and send them requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from faultset.collector.agent.protocol import SOCKET, VOLUME_ROOT
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.kubernetes.client import Api, build_path, label_selector, stream_from_pod
from faultset.collector.platforms.kubernetes.impairer import (
    PROGRAM,
    NodeCapabilities,
    ProgramImpairer,
    Refused,
    get_uid,
    intersect_capabilities,
)
from faultset.collector.platforms.kubernetes.manifests import describe_pod
from faultset.collector.platforms.kubernetes.namespaces import MANAGED
from faultset.collector.platforms.objects import is_ready
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

AGENT_NAME = "faultset-agent"
AGENT_LABELS = {**MANAGED, "app.kubernetes.io/name": AGENT_NAME}
_LOGS_FOLDER = "/var/log/pods"


def agent_manifests(*, namespace: str, image: str, app_namespace: str) -> list[Object]:
    """Return the objects that run an agent on every node.

    Parameters
    ----------
    namespace
        The control namespace, which must allow privileged pods.
    app_namespace
        Agents act only on pods in this namespace.
    """
    metadata = {"name": AGENT_NAME, "namespace": namespace, "labels": dict(AGENT_LABELS)}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": dict(AGENT_LABELS)},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
                "template": {"metadata": {"labels": dict(AGENT_LABELS)}, "spec": _build_pod(image, app_namespace)},
            },
        },
    ]


def _build_pod(image: str, app_namespace: str) -> dict[str, Any]:
    return {
        "hostPID": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [
            {
                "name": "agent",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": [*PROGRAM, "watch", app_namespace],
                "securityContext": {"privileged": True, "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False},
                "resources": {
                    "requests": {"cpu": "5m", "memory": "24Mi"},
                    "limits": {"cpu": "1", "memory": "128Mi"},
                },
                "readinessProbe": {"exec": {"command": ["test", "-S", SOCKET]}, "periodSeconds": 2},
                "volumeMounts": [
                    {"name": "volumes", "mountPath": VOLUME_ROOT},
                    {"name": "logs", "mountPath": _LOGS_FOLDER, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "volumes", "hostPath": {"path": VOLUME_ROOT, "type": "DirectoryOrCreate"}},
            {"name": "logs", "hostPath": {"path": _LOGS_FOLDER, "type": "DirectoryOrCreate"}},
        ],
    }


_RENEW_TIMEOUT_S = 5.0
_PAUSE_S = 0.5


class NodeAgents(ProgramImpairer):
    """The agents of a control namespace, one on each node, called through the API server.

    Parameters
    ----------
    namespace
        The control namespace.
    """

    container = "agent"

    def __init__(self, api: Api, namespace: str):
        super().__init__(api, namespace)
        self._pods: dict[str, str] = {}

    def describe_missing(self) -> str:
        """Return a sentence about missing agents; empty if an agent is ready on every node."""
        daemon_set = self._api.find(build_path("DaemonSet", self._namespace, AGENT_NAME))
        if daemon_set is None:
            return f"namespace {self._namespace} has no DaemonSet {AGENT_NAME}"
        status = daemon_set.get("status", {})
        desired_count = status.get("desiredNumberScheduled", 0)
        if not desired_count:
            return "no node agent is scheduled yet"
        unready = [describe_pod(pod) for pod in self._list_agent_pods() if not is_ready(pod)]
        ready_count = status.get("numberReady", 0)
        if ready_count < desired_count or unready:
            reasons = f" ({'; '.join(unready)})" if unready else ""
            return f"{ready_count} of {desired_count} node agents are ready{reasons}"
        return ""

    def capabilities(self) -> NodeCapabilities:
        """Return the capabilities that the agents of all nodes have."""
        return intersect_capabilities(self._send_request_to_node(node, "capabilities") for node in self._list_nodes())

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, given by name or uid; do nothing if the pod or impairment is gone."""
        with self._lock:
            is_ours = any(pod in (uid, target["metadata"]["name"]) for uid, (target, _) in self._impaired.items())
            super().lift(pod)
        for node in () if is_ours else self._list_nodes():
            self._send_request_to_node(node, "lift", pod=pod)

    def kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container; raise PlatformError if the container is not running."""
        name = pod["metadata"]["name"]
        statuses = pod.get("status", {}).get("containerStatuses", [])
        container_id = next((status.get("containerID") for status in statuses if status["name"] == container), None)
        if not container_id:
            raise PlatformError(f"cannot kill container {container} of pod {name}, since it is not running")
        self._send_request(pod, "kill", pod=get_uid(pod), container=container_id)

    def remove_volumes(self, paths: Sequence[str]) -> None:
        """Remove folders with their content from every node."""
        for node in self._list_nodes():
            self._send_request_to_node(node, "remove-volumes", paths=[*paths])

    def measure_host_load(self, *, reset: bool = False) -> HostLoad:
        """Return the load of the nodes since the last call with `reset`; delays come from the worst node."""
        responses = [self._send_request_to_node(name, "node", reset=reset) for name in self._list_nodes()]
        if not responses:
            return HostLoad()
        return HostLoad(
            load_average=max(node["load_average"] for node in responses),
            load_average_per_core=max(node["load_average"] / node["cores"] for node in responses),
            cores=sum(node["cores"] for node in responses),
            nodes=len(responses),
            worst_delay_ms=round(1e3 * max(node["worst_delay_s"] for node in responses), 3),
        )

    def clock_offset_s(self) -> float:
        """Return how many seconds the clock of the worst node is ahead of the collector's clock."""
        offsets = [self._clock_offset_s(node) for node in self._list_nodes()]
        return max(offsets, key=abs, default=0.0)

    def _clock_offset_s(self, node: str) -> float:
        """Return how many seconds a node's clock is ahead, from the quickest of several readings."""
        name = self._find_agents()[node]
        chunks = stream_from_pod(self._api, self._namespace, name, self.container, [*PROGRAM, "clock"])
        return round(max(int(chunk.split()[-1]) - time.time_ns() for chunk in chunks if chunk.strip()) / 1e9, 6)

    def _list_nodes(self) -> list[str]:
        return sorted(self._find_agents())

    def _find_agents(self, *, fresh: bool = False) -> dict[str, str]:
        with self._lock:
            if fresh or not self._pods:
                self._pods = {
                    pod["spec"]["nodeName"]: pod["metadata"]["name"]
                    for pod in self._list_agent_pods()
                    if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
                }
            return dict(self._pods)

    def _list_agent_pods(self) -> list[Object]:
        return self._api.get(build_path("Pod", self._namespace), {"labelSelector": label_selector(AGENT_LABELS)})[
            "items"
        ]

    def _send_request(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        return self._send_request_to_node(_get_node(target), verb, brief=brief, **arguments)

    def _send_request_to_node(self, node: str, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        """Send a request to the agent of a node; if the agent is gone, retry with its replacement."""
        deadline = time.monotonic() + (_RENEW_TIMEOUT_S if brief else self._api.retry_timeout_s)
        fresh = False
        while True:
            name = self._find_agents(fresh=fresh).get(node)
            try:
                if name is None:
                    raise PlatformError(f"node {node} has no ready node agent")
                return self._run(name, f"the agent on node {node}", verb, arguments)
            except Refused:
                raise
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
            fresh = True
            time.sleep(_PAUSE_S)


def _get_node(pod: Object) -> str:
    node = pod["spec"].get("nodeName")
    if not node:
        raise PlatformError(f"pod {pod['metadata']['name']} has no node yet and cannot be impaired")
    return node
