"""Find the processes and network namespaces of this node's pods, from /proc and the kubelet's log folders."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultset.collector.agent.networks import AgentError

# The cgroupfs driver calls a pod's control group `pod<uid>`; the systemd driver calls it `pod<uid>.slice`, with `_` for
# `-` in the uid. Runtimes append the container's id, under systemd after a prefix. Inside a control group namespace,
# the paths of other groups start with `/../`.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_POD = re.compile(rf"(?:^|[/-])pod(?P<uid>{_UID})(?:\.slice)?(?=[/:]|$)")
_CONTAINER = re.compile(r"(?P<prefix>[a-z-]*)[:-]?(?<![0-9a-f])(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)")
_NOT_A_CONTAINER = "conmon"
"""Prefix in the control group names of CRI-O's monitor processes, which also contain a container's id."""


@dataclass(frozen=True, kw_only=True)
class ProcessOwner:
    """The pod of a process and, unless it is the sandbox process, its container."""

    pod_uid: str
    container_id: str | None


def find_owner(cgroups: str) -> ProcessOwner | None:
    """Return the pod and container of a process.

    Parameters
    ----------
    cgroups
        Content of `/proc/PID/cgroup`, cgroup version 1 or 2.

    Returns
    -------
    ProcessOwner or None
        None if the process does not belong to a pod, or if its hierarchies name different pods or containers.
    """
    owners = {owner for line in cgroups.splitlines() if (owner := _parse_path(line.split(":", 2)[-1]))}
    if len({owner.pod_uid for owner in owners}) != 1:
        return None
    containers = {owner.container_id for owner in owners} - {None}
    if len(containers) > 1:
        return None
    return ProcessOwner(pod_uid=next(iter(owners)).pod_uid, container_id=containers.pop() if containers else None)


def _parse_path(path: str) -> ProcessOwner | None:
    pods = list(_POD.finditer(path))
    if not pods:
        return None
    uid = pods[-1]["uid"].replace("_", "-")
    container = _CONTAINER.match(path[pods[-1].end() :].lstrip("/:"))
    if container is None or _NOT_A_CONTAINER in container["prefix"]:
        return ProcessOwner(pod_uid=uid, container_id=None)
    return ProcessOwner(pod_uid=uid, container_id=container["id"])


_MAX_ATTEMPTS = 4
_PAUSE_S = 0.15


@dataclass(frozen=True, kw_only=True)
class PodProcess:
    """One process of a pod.

    Attributes
    ----------
    network
        Network namespace, as `net:[NUMBER]`.
    started
        Start time in clock ticks after boot.
    is_first
        Whether it has pid 1 in its own process namespace.
    """

    pid: int
    owner: ProcessOwner
    network: str
    started: int
    is_first: bool


class Pods:
    """The pods of one namespace on this node.

    Parameters
    ----------
    namespace
        Pods of other namespaces are never touched.
    proc
        The host's /proc.
    logs
        The kubelet's log folder, which contains a folder NAMESPACE_NAME_UID for each pod.
    """

    def __init__(self, namespace: str, *, proc: Path = Path("/proc"), logs: Path = Path("/var/log/pods")):
        self.namespace, self._proc, self._logs = namespace, proc, logs

    unsupported_verbs: Mapping[str, str] = {}
    """Verbs that never work with these pods, with the reason."""

    def names(self) -> dict[str, str]:
        """Return the names of the namespace's pods by uid, from the kubelet's log folders."""
        with contextlib.suppress(OSError):
            folders = [entry.name.split("_") for entry in self._logs.iterdir()]
            return {words[2]: words[1] for words in folders if len(words) == 3 and words[0] == self.namespace}
        return {}

    def unavailable_reason(self) -> str:
        """Return why the namespace's pods cannot be identified; empty if they can."""
        agent = self._read_owner(os.getpid())
        if agent is None:
            return "the agent's control group does not name its pod"
        with contextlib.suppress(OSError):
            if any(entry.name.endswith(f"_{agent.pod_uid}") for entry in self._logs.iterdir()):
                return ""
        return f"the kubelet does not write its logs to {self._logs}, so pods of other namespaces cannot be excluded"

    def check(self, uid: str) -> None:
        """Raise AgentError if a pod does not belong to the namespace."""
        if uid not in self.names():
            raise AgentError(f"pod {uid} does not belong to namespace {self.namespace} on this node")

    def processes(self, uid: str | None = None) -> list[PodProcess]:
        """Return the processes of one pod, or of all pods of the node."""
        return [process for process in self._scan() if uid is None or process.owner.pod_uid == uid]

    def open_network(self, uid: str) -> int:
        """Open the network namespace of a pod and return its file descriptor; the caller closes it.

        Raises
        ------
        AgentError
            The pod belongs to another namespace, has no process, or shares its network with processes outside.
        """
        self.check(uid)
        first = self._find_first(uid)
        strangers = self._find_strangers(first)
        for _ in range(_MAX_ATTEMPTS):
            if strangers:
                time.sleep(_PAUSE_S)
                first = self._find_first(uid)
                strangers = self._find_strangers(first)
        if strangers:
            raise AgentError(
                f"pod {uid} shares its network with process {strangers[0]} outside the pod, so it is not impaired"
            )
        descriptor = os.open(self._proc / str(first.pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
        if f"net:[{os.fstat(descriptor).st_ino}]" != first.network:
            os.close(descriptor)
            raise AgentError(f"pod {uid} has just ended")
        return descriptor

    def kill(self, uid: str, container_id: str) -> int:
        """Kill the main process of a container and return its pid.

        Raises
        ------
        AgentError
            The pod belongs to another namespace, or the container has no process.
        """
        self.check(uid)
        container_id = container_id.rpartition("/")[2]
        processes = [process for process in self.processes(uid) if process.owner.container_id == container_id]
        main = min(processes, key=lambda process: (not process.is_first, process.started), default=None)
        if main is None:
            raise AgentError(f"container {container_id[:12]} of pod {uid} has no process on this node")
        handle = os.pidfd_open(main.pid)
        try:
            if self._read_owner(main.pid) != main.owner:
                raise AgentError(f"container {container_id[:12]} of pod {uid} has just ended")
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            raise AgentError(f"container {container_id[:12]} of pod {uid} has just ended") from None
        finally:
            os.close(handle)
        return main.pid

    def _find_first(self, uid: str) -> PodProcess:
        first = min(self.processes(uid), key=lambda process: process.started, default=None)
        if first is None:
            raise AgentError(f"pod {uid} has no process on this node")
        return first

    def _find_strangers(self, member: PodProcess) -> list[int]:
        """Return processes outside a pod that use its network, except the agent, which enters it briefly."""
        agent = self._read_owner(os.getpid())
        allowed = {member.owner.pod_uid, agent.pod_uid if agent else None} - {None}
        strangers = []
        for pid in self._pids():
            with contextlib.suppress(OSError):
                if os.readlink(self._proc / str(pid) / "ns" / "net") == member.network:
                    owner = self._read_owner(pid)
                    if owner is None or owner.pod_uid not in allowed:
                        strangers.append(pid)
        return strangers

    def _scan(self) -> Iterator[PodProcess]:
        for pid in self._pids():
            with contextlib.suppress(OSError, ValueError):
                owner = self._read_owner(pid)
                if owner is not None:
                    folder = self._proc / str(pid)
                    yield PodProcess(
                        pid=pid,
                        owner=owner,
                        network=os.readlink(folder / "ns" / "net"),
                        started=int((folder / "stat").read_text().rpartition(")")[2].split()[19]),
                        is_first=_is_first((folder / "status").read_text()),
                    )

    def _pids(self) -> list[int]:
        return [int(name) for name in os.listdir(self._proc) if name.isdigit()]

    def _read_owner(self, pid: int) -> ProcessOwner | None:
        try:
            return find_owner((self._proc / str(pid) / "cgroup").read_text())
        except OSError:
            return None


def _is_first(status: str) -> bool:
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == "1"


class OwnPod(Pods):
    """The pod that this process runs in; every uid means this pod, since a pod cannot read its own uid."""

    unsupported_verbs: Mapping[str, str] = {"kill": "only the node agent can kill a container's main process"}

    def __init__(self) -> None:
        super().__init__("")

    def names(self) -> dict[str, str]:
        """Return an empty mapping, because requests identify the pod by its uid."""
        return {}

    def unavailable_reason(self) -> str:
        """Return an empty string, because the pod is always available."""
        return ""

    def processes(self, uid: str | None = None) -> list[PodProcess]:
        """Return an empty list, because an earlier agent in this pod leaves nothing to adopt."""
        return []

    def open_network(self, uid: str) -> int:
        """Open the network namespace of this process."""
        return os.open(self._proc / "self" / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
