"""The node agents of an episode: their manifests, and what the collector asks of them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.messages import (
    Acknowledgement,
    AgentCapabilities,
    AgentMessage,
    ImpairPod,
    KillContainer,
    KilledProcess,
    LiftImpairment,
    MessageT,
    NodeStatistics,
    PacketCount,
    PrepareVolumes,
    ReadCapabilities,
    ReadNode,
    ReadPackets,
    RemoveVolumes,
    RenewedLeases,
    RenewLeases,
    read_message,
)
from faultset.collector.agent.protocol import AGENT_PORT, TOKEN_HEADER
from faultset.collector.platforms.api.capabilities import HostLoad
from faultset.collector.platforms.api.impairments import Impairment, impairment_record
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import is_ready
from faultset.collector.platforms.kubernetes.api.client import Api, NotFound, path_of
from faultset.collector.platforms.kubernetes.impairments.agent_manifests import AGENT_LABELS, AGENT_NAME
from faultset.collector.platforms.kubernetes.impairments.impairer import NodeCapabilities, Renewal, common, uid_of
from faultset.core.errors import PlatformError

_RENEW_TIMEOUT_S = 5.0
_PAUSE_S = 0.5


@dataclass(frozen=True, kw_only=True)
class _Impaired:
    name: str
    node: str
    impairment: Impairment


class NodeAgents:
    """The agents of one control namespace.

    They are asked through the API server, so that a kubeconfig is enough. What is impaired stays so only while this
    process lives: its leases end half a minute after the last renewal.

    Parameters
    ----------
    namespace
        The control namespace.
    token
        As in `agent_manifests`.
    """

    def __init__(self, api: Api, namespace: str, token: str):
        self.token = token
        self._api, self._namespace = api, namespace
        self._impaired: dict[str, _Impaired] = {}
        self._lock = threading.RLock()
        self._renewal = Renewal(self.renew)
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
        found = [self._ask(node, ReadCapabilities(), AgentCapabilities) for node in self._nodes()]
        return common(one.as_record() for one in found)

    def start(self) -> None:
        """Begin to renew leases."""
        self._renewal.start()

    def close(self) -> None:
        """Renew no more leases; may be called twice."""
        self._renewal.close()

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair all that the pod sends, in place of any impairment before; raise PlatformError when it fails."""
        made = _Impaired(name=pod["metadata"]["name"], node=_node_of(pod), impairment=impairment)
        with self._lock:
            self._set(uid_of(pod), made)
            self._impaired[uid_of(pod)] = made

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, by name or uid; nothing happens when there is none, or no pod any more."""
        with self._lock:
            known = {uid: one for uid, one in self._impaired.items() if pod in (uid, one.name)}
            for uid, one in known.items():
                with contextlib.suppress(NotFound):
                    self._ask(one.node, LiftImpairment(pod_uid=uid), Acknowledgement)
                del self._impaired[uid]
        if not known:
            for node in self._nodes():
                self._ask(node, LiftImpairment(pod=pod), Acknowledgement)

    def impaired_packets(self, pod: Object) -> int:
        """Return how many packets the impairment has met so far; 0 without one."""
        return self._ask(_node_of(pod), ReadPackets(pod_uid=uid_of(pod)), PacketCount).packets

    def kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container; raise PlatformError when none runs."""
        name = pod["metadata"]["name"]
        statuses = pod.get("status", {}).get("containerStatuses", [])
        identity = next((one.get("containerID") for one in statuses if one["name"] == container), None)
        if not identity:
            raise PlatformError(f"container {container} of pod {name} does not run, so it cannot be killed")
        self._ask(_node_of(pod), KillContainer(pod_uid=uid_of(pod), container_id=identity), KilledProcess)

    def prepare_volumes(self, paths: Sequence[str]) -> None:
        """Make folders on every node that the image's user may write."""
        for node in self._nodes():
            self._ask(node, PrepareVolumes(paths=tuple(paths)), Acknowledgement)

    def remove_volumes(self, paths: Sequence[str]) -> None:
        """Remove folders with all that is in them from every node."""
        for node in self._nodes():
            self._ask(node, RemoveVolumes(paths=tuple(paths)), Acknowledgement)

    def host_load(self, *, reset: bool = False) -> HostLoad:
        """Return how busy the nodes are since the last call with `reset`; of several nodes the worst counts."""
        answers = [self._ask(node, ReadNode(reset=reset), NodeStatistics) for node in self._nodes()]
        if not answers:
            return HostLoad()
        return HostLoad(
            load_average=max(one.load_average for one in answers),
            load_average_per_core=max(one.load_average / one.cores for one in answers),
            cores=sum(one.cores for one in answers),
            nodes=len(answers),
            worst_delay_ms=round(1e3 * max(one.worst_delay_s for one in answers), 3),
        )

    def clock_offset_s(self) -> float:
        """Return how far the node's clock is ahead of ours, in seconds; of the node that is furthest off."""
        offsets = [self._clock_offset_s(node) for node in self._nodes()]
        return max(offsets, key=abs, default=0.0)

    def renew(self) -> None:
        """Renew all leases once; what an agent has lost is set again."""
        with self._lock:
            by_node: dict[str, list[str]] = {}
            for uid, one in self._impaired.items():
                by_node.setdefault(one.node, []).append(uid)
            for node, uids in by_node.items():
                for uid in self._ask(node, RenewLeases(pod_uids=tuple(uids)), RenewedLeases, brief=True).unknown:
                    self._set(uid, self._impaired[uid], brief=True)

    def _set(self, uid: str, wanted: _Impaired, *, brief: bool = False) -> None:
        request = ImpairPod(pod_uid=uid, impairment=impairment_record(wanted.impairment))
        self._ask(wanted.node, request, Acknowledgement, brief=brief)

    def _clock_offset_s(self, node: str) -> float:
        best: tuple[float, float] | None = None
        for _ in range(3):
            before = time.time()
            theirs = self._ask(node, ReadNode(), NodeStatistics).time_ns / 1e9
            after = time.time()
            if best is None or after - before < best[0]:
                best = (after - before, theirs - (before + after) / 2)
        assert best is not None
        return round(best[1], 6)

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

    def _ask(self, node: str, request: AgentMessage, answer: type[MessageT], *, brief: bool = False) -> MessageT:
        """Ask the agent of a node; another that has taken the place of the known one is found."""
        deadline = time.monotonic() + (_RENEW_TIMEOUT_S if brief else self._api.retry_timeout_s)
        fresh = False
        while True:
            name = self._agents(fresh=fresh).get(node)
            try:
                if name is None:
                    raise PlatformError(f"node {node} has no node agent that is ready")
                record = self._send(name, request)
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
                fresh = True
                time.sleep(_PAUSE_S)
                continue
            verb = request.path.strip("/")
            if isinstance(record, dict) and "error" in record:
                raise PlatformError(f"the agent on node {node} could not {verb}: {record['error']}")
            try:
                return read_message(answer, record)
            except AgentError as error:
                raise PlatformError(
                    f"the agent on node {node} gave no answer to {verb} that can be read: {error}; "
                    "use an image of this version of faultset"
                ) from None

    def _send(self, name: str, request: AgentMessage) -> Any:
        path = f"{path_of('Pod', self._namespace)}/{name}:{AGENT_PORT}/proxy{request.path}"
        record = request.as_record()
        if request.method == "GET" and record:
            words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in record.items()}
            path = f"{path}?{urlencode(words)}"
        body = json.dumps(record).encode() if request.method == "POST" else None
        headers = {TOKEN_HEADER: self.token}
        answer = self._api.call(request.method, path, body=body, headers=headers, timeout_s=30.0, retry_timeout_s=0.0)
        return json.loads(answer)


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
