"""Impair and kill pods on a cluster by running the agent program on the nodes or, if that is forbidden, in each pod."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from faultset.collector.agent.program import SOCKET, VOLUME_ROOT
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.impairments import Impairment, encode_impairment
from faultset.collector.platforms.kubernetes.client import (
    Api,
    NotFound,
    build_path,
    label_selector,
    run_in_pod,
    stream_from_pod,
)
from faultset.collector.platforms.kubernetes.manifests import describe_pod
from faultset.collector.platforms.kubernetes.objects import MANAGED
from faultset.collector.platforms.objects import is_ready
from faultset.core.errors import PlatformError
from faultset.core.processes import poll_until
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

RENEW_S = 8.0
PROGRAM = ("python3", "-m", "faultset.collector.agent.program")
EPHEMERAL = "network"
"""Name of the container that impairs a pod from inside; the recorded telemetry omits it."""

logger = logging.getLogger(__name__)


def merge_reasons(responses: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return why capabilities are missing on a node, from the responses of agents to the verb `capabilities`."""
    nodes = list(responses)
    if not nodes:
        return dict.fromkeys(("loss", "partition", "delay", "kill"), "no node agent is running")
    return {verb: reason for node in nodes for verb, reason in node["reasons"].items()}


class Impairer(ABC):
    """A mechanism that impairs and kills pods: agents on the nodes, a container in each pod, or Chaos Mesh.

    From `start` to `close`, a thread calls `renew` every few seconds, so that impairments end with this process.
    """

    def __init__(self, api: Api, namespace: str):
        self._api, self._namespace = api, namespace
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start renewing leases; may be called twice."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew_repeatedly, name="leases", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop renewing leases, which then expire; may be called twice."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * RENEW_S)

    @abstractmethod
    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, replacing an earlier impairment; raise PlatformError if it fails."""

    @abstractmethod
    def lift(self, pod: str) -> None:
        """End the impairment of a pod, given by name or uid; do nothing if the pod or impairment is gone."""

    @abstractmethod
    def impaired_packets(self, pod: Object) -> int:
        """Return how many packets have been impaired so far; 0 without an impairment."""

    @abstractmethod
    def kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container; raise PlatformError if it is not running."""

    @abstractmethod
    def renew(self) -> None:
        """Renew all leases once; restore impairments that were lost."""

    def _renew_repeatedly(self) -> None:
        while not self._closed.wait(RENEW_S):
            try:
                self.renew()
            except PlatformError as error:
                logger.warning("a lease was not renewed: %s", error)


class ProgramImpairer(Impairer):
    """Impairs pods by running the program of `faultset.collector.agent` with exec in pods of `namespace`."""

    container: ClassVar[str]
    """Name of the container in which the program runs."""

    def __init__(self, api: Api, namespace: str):
        super().__init__(api, namespace)
        self._impaired: dict[str, tuple[Object, Impairment]] = {}

    @abstractmethod
    def _send_request(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        """Send a request to the program responsible for a pod; raise NotFound if the pod is gone."""

    def impair(self, pod: Object, impairment: Impairment) -> None:
        with self._lock:
            self._set(pod, impairment)
            self._impaired[get_uid(pod)] = (pod, impairment)

    def lift(self, pod: str) -> None:
        with self._lock:
            for uid, (target, _) in [*self._impaired.items()]:
                if pod in (uid, target["metadata"]["name"]):
                    with contextlib.suppress(NotFound):
                        self._send_request(target, "lift", pod=uid)
                    del self._impaired[uid]

    def impaired_packets(self, pod: Object) -> int:
        return self._send_request(pod, "packets", pod=get_uid(pod))["packets"]

    def renew(self) -> None:
        with self._lock:
            for uid, (pod, impairment) in [*self._impaired.items()]:
                if not self._send_request(pod, "renew", brief=True, pod=uid)["renewed"]:
                    self._set(pod, impairment, brief=True)

    def _set(self, pod: Object, impairment: Impairment, *, brief: bool = False) -> None:
        self._send_request(pod, "impair", brief=brief, pod=get_uid(pod), impairment=encode_impairment(impairment))

    def _run(self, name: str, description: str, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run the program in a pod and return its response; errors start with `description`."""
        text = run_in_pod(self._api, self._namespace, name, self.container, [*PROGRAM, verb, json.dumps(arguments)])
        try:
            response = json.loads(text)
        except ValueError:
            raise PlatformError(
                f"{description} sent an invalid response to {verb}; use an image of this version of faultset"
            ) from None
        if "error" in response:
            raise Refused(f"{description} could not {verb}: {response['error']}")
        return response


class Refused(PlatformError):
    """The program refused a request."""


def get_uid(pod: Object) -> str:
    return pod["metadata"]["uid"]


_PATCH_TYPE = "application/strategic-merge-patch+json"
_START_TIMEOUT_S = 60.0
_POLL_S = 0.4


class EphemeralImpairer(ProgramImpairer):
    """Impairs the pods of a namespace from inside.

    Parameters
    ----------
    image
        The application's image, which contains the agent program.
    """

    container = EPHEMERAL

    def __init__(self, api: Api, namespace: str, image: str):
        super().__init__(api, namespace)
        self._image = image

    def prepare(self, pods: Iterable[Object]) -> None:
        """Add the container to pods without it, and wait until it is running in all pods.

        Raises
        ------
        PlatformError
            The cluster forbids ephemeral containers, or one does not start within a minute.
        """
        targets = list(pods)
        for pod in targets:
            self._insert(pod)
        names = [pod["metadata"]["name"] for pod in targets]
        if not poll_until(lambda: not self._list_missing(names), timeout_s=_START_TIMEOUT_S, pause_s=_POLL_S):
            raise PlatformError(
                f"the container {EPHEMERAL}, which impairs networks, did not start within {_START_TIMEOUT_S:g} s in "
                f"{', '.join(self._list_missing(names))}"
            )

    def missing_capabilities(self) -> dict[str, str]:
        """Return the capabilities that the first pod with a running container lacks, with the reasons."""
        running = next((pod for pod in self._pods() if _is_container_running(pod)), None)
        return merge_reasons([] if running is None else [self._send_request(running, "capabilities")])

    def impair(self, pod: Object, impairment: Impairment) -> None:
        self.prepare([pod])
        super().impair(pod, impairment)

    def kill(self, pod: Object, container: str) -> None:
        # the kernel ignores SIGKILL from inside a container to its main process
        raise PlatformError(
            f"container {container} of pod {pod['metadata']['name']} cannot be killed without the node agent; "
            "allow privileged pods in the control namespace"
        )

    def renew(self) -> None:
        with self._lock:
            self._impaired = {uid: entry for uid, entry in self._impaired.items() if self._is_running(entry[0])}
            super().renew()
        for pod in self._pods():
            self._insert(pod)

    def _insert(self, pod: Object) -> None:
        may_run = pod.get("status", {}).get("phase") in ("Pending", "Running")
        if _has_container(pod) or not may_run or pod["metadata"].get("deletionTimestamp"):
            return
        container = {
            "name": EPHEMERAL,
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": [*PROGRAM, "watch"],
            "securityContext": {
                "runAsUser": 0,
                "runAsGroup": 0,
                "runAsNonRoot": False,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
            },
        }
        path = f"{build_path('Pod', self._namespace, pod['metadata']['name'])}/ephemeralcontainers"
        try:
            self._api.call("PATCH", path, body={"spec": {"ephemeralContainers": [container]}}, content_type=_PATCH_TYPE)
        except NotFound:
            return

    def _list_missing(self, names: Iterable[str]) -> list[str]:
        running = {pod["metadata"]["name"] for pod in self._pods() if _is_container_running(pod)}
        alive = {pod["metadata"]["name"] for pod in self._pods() if not pod["metadata"].get("deletionTimestamp")}
        return [name for name in names if name in alive and name not in running]

    def _is_running(self, pod: Object) -> bool:
        current = self._api.find(build_path("Pod", self._namespace, pod["metadata"]["name"]))
        return current is not None and get_uid(current) == get_uid(pod) and _is_container_running(current)

    def _pods(self) -> list[Object]:
        return self._api.get(build_path("Pod", self._namespace))["items"]

    def _send_request(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        name = target["metadata"]["name"]
        if not self._is_running(target):
            raise NotFound(f"pod {name} was deleted, or its container {EPHEMERAL} is not running")
        return self._run(name, f"pod {name}", verb, arguments)


def _has_container(pod: Object) -> bool:
    return any(entry["name"] == EPHEMERAL for entry in pod["spec"].get("ephemeralContainers") or [])


def _is_container_running(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or []
    return any(status["name"] == EPHEMERAL and "running" in status.get("state", {}) for status in statuses)


AGENT_NAME = "faultset-agent"
AGENT_LABELS = {**MANAGED, "app.kubernetes.io/name": AGENT_NAME}
_LOGS_FOLDER = "/var/log/pods"


def build_agent_manifest(*, namespace: str, image: str, app_namespace: str) -> Object:
    """Return the DaemonSet that runs an agent on every node.

    Parameters
    ----------
    namespace
        The control namespace, which must allow privileged pods.
    app_namespace
        Agents act only on pods in this namespace.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AGENT_NAME, "namespace": namespace, "labels": dict(AGENT_LABELS)},
        "spec": {
            "selector": {"matchLabels": dict(AGENT_LABELS)},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": dict(AGENT_LABELS)}, "spec": _build_agent_pod(image, app_namespace)},
        },
    }


def _build_agent_pod(image: str, app_namespace: str) -> dict[str, Any]:
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
                "resources": {"requests": {"cpu": "5m", "memory": "24Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
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
_RETRY_PAUSE_S = 0.5


class NodeAgents(ProgramImpairer):
    """The agents of a control namespace, one on each node, called through the API server."""

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

    def missing_capabilities(self) -> dict[str, str]:
        """Return the capabilities that an agent of any node lacks, with the reasons."""
        return merge_reasons(self._send_request_to_node(node, "capabilities") for node in self._list_nodes())

    def lift(self, pod: str) -> None:
        with self._lock:
            is_ours = any(pod in (uid, target["metadata"]["name"]) for uid, (target, _) in self._impaired.items())
            super().lift(pod)
        for node in () if is_ours else self._list_nodes():
            self._send_request_to_node(node, "lift", pod=pod)

    def kill(self, pod: Object, container: str) -> None:
        name = pod["metadata"]["name"]
        statuses = pod.get("status", {}).get("containerStatuses", [])
        container_id = next((status.get("containerID") for status in statuses if status["name"] == container), None)
        if not container_id:
            raise PlatformError(f"cannot kill container {container} of pod {name}, since it is not running")
        self._send_request(pod, "kill", pod=get_uid(pod), container=container_id)

    def remove_volumes(self, paths: Sequence[str]) -> None:
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
            time.sleep(_RETRY_PAUSE_S)


def _get_node(pod: Object) -> str:
    node = pod["spec"].get("nodeName")
    if not node:
        raise PlatformError(f"pod {pod['metadata']['name']} has no node yet and cannot be impaired")
    return node
