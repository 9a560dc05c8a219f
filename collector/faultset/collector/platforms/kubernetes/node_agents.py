"""The objects that run a node agent on every node of a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from faultset.collector.agent.protocol import SOCKET, VOLUME_ROOT
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.kubernetes.client import Api, NotFound, path_of, stream_from_pod
from faultset.collector.platforms.kubernetes.impairer import (
    PROGRAM,
    NodeCapabilities,
    ProgramImpairer,
    Refused,
    common,
    uid_of,
)
from faultset.collector.platforms.kubernetes.namespaces import MANAGED
from faultset.collector.platforms.objects import Object, is_ready
from faultset.core.errors import PlatformError

AGENT_NAME = "faultset-agent"
AGENT_LABELS = {**MANAGED, "app.kubernetes.io/name": AGENT_NAME}
_LOGS = "/var/log/pods"


def agent_manifests(*, namespace: str, image: str, app_namespace: str) -> list[Object]:
    """Return the objects that run one agent on every node.

    Parameters
    ----------
    namespace
        Ours, which must allow privileged pods.
    app_namespace
        The only one whose pods the agents touch.
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
                "template": {"metadata": {"labels": dict(AGENT_LABELS)}, "spec": _pod(image, app_namespace)},
            },
        },
    ]


def _pod(image: str, app_namespace: str) -> dict[str, Any]:
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
                    {"name": "logs", "mountPath": _LOGS, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "volumes", "hostPath": {"path": VOLUME_ROOT, "type": "DirectoryOrCreate"}},
            {"name": "logs", "hostPath": {"path": _LOGS, "type": "DirectoryOrCreate"}},
        ],
    }


_RENEW_TIMEOUT_S = 5.0
_PAUSE_S = 0.5


class NodeAgents(ProgramImpairer):
    """The agents of one control namespace, one on each node; a kubeconfig is enough to ask them.

    Parameters
    ----------
    namespace
        The control namespace.
    """

    container = "agent"

    def __init__(self, api: Api, namespace: str):
        super().__init__(api, namespace)
        self._pods: dict[str, str] = {}

    def ready(self, nodes_needed: int | None = None) -> str:
        """Return what is missing, empty when an agent answers on every node.

        Parameters
        ----------
        nodes_needed
            On how many; as many as the cluster wants to run when left out.
        """
        try:
            status = self._api.get(path_of("DaemonSet", self._namespace, AGENT_NAME)).get("status", {})
        except NotFound:
            return f"namespace {self._namespace} has no DaemonSet {AGENT_NAME}"
        wanted = status.get("desiredNumberScheduled", 0) if nodes_needed is None else nodes_needed
        if not wanted:
            return "no node has been given a node agent yet"
        waiting = [_state_of(pod) for pod in self._agent_pods() if not is_ready(pod)]
        answering = status.get("numberReady", 0)
        if answering < wanted or waiting:
            said = f" ({'; '.join(waiting)})" if waiting else ""
            return f"{answering} of {wanted} node agents are ready{said}"
        return ""

    def capabilities(self) -> NodeCapabilities:
        """Return what the agents of all nodes can do."""
        return common(self._ask_node(node, "capabilities") for node in self._nodes())

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, by name or uid; nothing happens when there is none, or no pod any more."""
        with self._lock:
            is_known = any(pod in (uid, one["metadata"]["name"]) for uid, (one, _) in self._impaired.items())
            super().lift(pod)
        for node in () if is_known else self._nodes():
            self._ask_node(node, "lift", pod=pod)

    def kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container; raise PlatformError when none runs."""
        name = pod["metadata"]["name"]
        statuses = pod.get("status", {}).get("containerStatuses", [])
        identity = next((one.get("containerID") for one in statuses if one["name"] == container), None)
        if not identity:
            raise PlatformError(f"container {container} of pod {name} does not run, so it cannot be killed")
        self._ask(pod, "kill", pod=uid_of(pod), container=identity)

    def remove_volumes(self, paths: Sequence[str]) -> None:
        """Remove folders with all that is in them from every node."""
        for node in self._nodes():
            self._ask_node(node, "remove-volumes", paths=[*paths])

    def host_load(self, *, reset: bool = False) -> HostLoad:
        """Return how busy the nodes are since the last call with `reset`; of several nodes the worst counts."""
        answers = [self._ask_node(node, "node", reset=reset) for node in self._nodes()]
        if not answers:
            return HostLoad()
        return HostLoad(
            load_average=max(one["load_average"] for one in answers),
            load_average_per_core=max(one["load_average"] / one["cores"] for one in answers),
            cores=sum(one["cores"] for one in answers),
            nodes=len(answers),
            worst_delay_ms=round(1e3 * max(one["worst_delay_s"] for one in answers), 3),
        )

    def clock_offset_s(self) -> float:
        """Return how far the node's clock is ahead of ours, in seconds; of the node that is furthest off."""
        offsets = [self._clock_offset_s(node) for node in self._nodes()]
        return max(offsets, key=abs, default=0.0)

    def _clock_offset_s(self, node: str) -> float:
        """Return by how much a node's clock is ahead: of several readings the one that came quickest."""
        name = self._agents()[node]
        chunks = stream_from_pod(self._api, self._namespace, name, self.container, [*PROGRAM, "clock"])
        return round(max(int(chunk.split()[-1]) - time.time_ns() for chunk in chunks if chunk.strip()) / 1e9, 6)

    def _nodes(self) -> list[str]:
        return sorted(self._agents())

    def _agents(self, *, fresh: bool = False) -> dict[str, str]:
        with self._lock:
            if fresh or not self._pods:
                self._pods = {
                    pod["spec"]["nodeName"]: pod["metadata"]["name"]
                    for pod in self._agent_pods()
                    if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
                }
            return dict(self._pods)

    def _agent_pods(self) -> list[Object]:
        selector = ",".join(f"{key}={value}" for key, value in AGENT_LABELS.items())
        return self._api.get(path_of("Pod", self._namespace), {"labelSelector": selector})["items"]

    def _ask(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        return self._ask_node(_node_of(target), verb, brief=brief, **arguments)

    def _ask_node(self, node: str, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        """Ask the agent of a node; another that has taken the place of the known one is found."""
        deadline = time.monotonic() + (_RENEW_TIMEOUT_S if brief else self._api.retry_timeout_s)
        fresh = False
        while True:
            name = self._agents(fresh=fresh).get(node)
            try:
                if name is None:
                    raise PlatformError(f"node {node} has no node agent that is ready")
                return self._run(name, f"the agent on node {node}", verb, arguments)
            except Refused:
                raise
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
            fresh = True
            time.sleep(_PAUSE_S)


def _node_of(pod: Object) -> str:
    node = pod["spec"].get("nodeName")
    if not node:
        raise PlatformError(f"pod {pod['metadata']['name']} runs on no node yet, so nothing can be done to it")
    return node


def _state_of(pod: Object) -> str:
    where = pod["spec"].get("nodeName") or "no node"
    for status in pod.get("status", {}).get("containerStatuses") or []:
        waiting = status.get("state", {}).get("waiting")
        if waiting:
            return f"{where}: {waiting.get('reason')} {waiting.get('message', '')}".strip()
    return f"{where}: {pod.get('status', {}).get('phase', 'unknown')}"
