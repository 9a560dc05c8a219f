"""The pods of this node as the kernel and the kubelet show them: processes, network namespaces, log folders."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultset.collector.agent.cgroups import Place, place_of
from faultset.collector.agent.errors import AgentError

_TRIES = 4
_PAUSE_S = 0.15


@dataclass(frozen=True, kw_only=True)
class PodProcess:
    """One process of a pod.

    Attributes
    ----------
    network
        Its network namespace, as `net:[NUMBER]`.
    started
        Clock ticks after boot.
    is_first
        Whether it is number 1 in a process namespace of its own.
    """

    pid: int
    place: Place
    network: str
    started: int
    is_first: bool


class Pods:
    """Finds pods on this node, of one namespace only.

    Parameters
    ----------
    namespace
        The only one whose pods are ever touched.
    proc
        The host's /proc.
    logs
        The kubelet's folder of logs, which holds a folder NAMESPACE_NAME_UID for each pod.
    """

    def __init__(self, namespace: str, *, proc: Path = Path("/proc"), logs: Path = Path("/var/log/pods")):
        self.namespace, self._proc, self._logs = namespace, proc, logs

    impossible: Mapping[str, str] = {}
    """What can never be done here, with the reason."""

    def names(self) -> dict[str, str]:
        """Return the names of the namespace's pods on this node by uid, as far as the kubelet's folders tell."""
        with contextlib.suppress(OSError):
            parts = [entry.name.split("_") for entry in self._logs.iterdir()]
            return {part[2]: part[1] for part in parts if len(part) == 3 and part[0] == self.namespace}
        return {}

    def unavailable_reason(self) -> str:
        """Return why pods cannot be told apart here; empty when they can."""
        own = self._place(os.getpid())
        if own is None:
            return "the agent's own control group names no pod"
        with contextlib.suppress(OSError):
            if any(entry.name.endswith(f"_{own.pod_uid}") for entry in self._logs.iterdir()):
                return ""
        return f"the kubelet keeps its logs elsewhere than in {self._logs}, so pods of others cannot be told apart"

    def check(self, uid: str) -> None:
        """Raise AgentError for a pod that is not of the namespace."""
        if uid not in self.names():
            raise AgentError(f"pod {uid} is not one of namespace {self.namespace} on this node")

    def processes(self, uid: str | None = None) -> list[PodProcess]:
        """Return the processes of one pod, or of all pods of the node."""
        return [found for found in self._scan() if uid is None or found.place.pod_uid == uid]

    def network_of(self, uid: str) -> int:
        """Open the network namespace of a pod and return the file descriptor, which the caller closes.

        Raises
        ------
        AgentError
            The pod is not of our namespace, has no process, or shares its network with processes that are not its.
        """
        self.check(uid)
        first = self._first(uid)
        strangers = self._strangers(first)
        for _ in range(_TRIES):
            if strangers:
                time.sleep(_PAUSE_S)
                first = self._first(uid)
                strangers = self._strangers(first)
        if strangers:
            raise AgentError(
                f"pod {uid} shares its network with process {strangers[0]} outside of it, so nothing is done there"
            )
        descriptor = os.open(self._proc / str(first.pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
        if f"net:[{os.fstat(descriptor).st_ino}]" != first.network:
            os.close(descriptor)
            raise AgentError(f"pod {uid} ended just now")
        return descriptor

    def kill(self, uid: str, container_id: str, number: int = signal.SIGKILL) -> int:
        """Signal the main process of a container and return its pid.

        Raises
        ------
        AgentError
            The pod is not of our namespace, or the container has no process in it.
        """
        self.check(uid)
        container_id = container_id.rpartition("/")[2]
        inside = [one for one in self.processes(uid) if one.place.container_id == container_id]
        main = min(inside, key=lambda one: (not one.is_first, one.started), default=None)
        if main is None:
            raise AgentError(f"container {container_id[:12]} of pod {uid} has no process on this node")
        handle = os.pidfd_open(main.pid)
        try:
            if self._place(main.pid) != main.place:
                raise AgentError(f"container {container_id[:12]} of pod {uid} ended just now")
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            raise AgentError(f"container {container_id[:12]} of pod {uid} ended just now") from None
        finally:
            os.close(handle)
        return main.pid

    def _first(self, uid: str) -> PodProcess:
        first = min(self.processes(uid), key=lambda one: one.started, default=None)
        if first is None:
            raise AgentError(f"pod {uid} has no process on this node")
        return first

    def _strangers(self, member: PodProcess) -> list[int]:
        """Return processes that use a pod's network but are not in the pod; ours are there for a moment."""
        own = self._place(os.getpid())
        mine = {member.place.pod_uid, own.pod_uid if own else None} - {None}
        found = []
        for pid in self._pids():
            with contextlib.suppress(OSError):
                if os.readlink(self._proc / str(pid) / "ns" / "net") == member.network:
                    place = self._place(pid)
                    if place is None or place.pod_uid not in mine:
                        found.append(pid)
        return found

    def _scan(self) -> Iterator[PodProcess]:
        for pid in self._pids():
            with contextlib.suppress(OSError, ValueError):
                place = self._place(pid)
                if place is not None:
                    folder = self._proc / str(pid)
                    yield PodProcess(
                        pid=pid,
                        place=place,
                        network=os.readlink(folder / "ns" / "net"),
                        started=int((folder / "stat").read_text().rpartition(")")[2].split()[19]),
                        is_first=_is_first((folder / "status").read_text()),
                    )

    def _pids(self) -> list[int]:
        return [int(name) for name in os.listdir(self._proc) if name.isdigit()]

    def _place(self, pid: int) -> Place | None:
        try:
            return place_of((self._proc / str(pid) / "cgroup").read_text())
        except OSError:
            return None


def _is_first(status: str) -> bool:
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == "1"


class OwnPod(Pods):
    """The pod around this process, which reaches no other; its uid is unknown inside, so that any stands for it."""

    impossible: Mapping[str, str] = {"kill": "ending a container's main process needs the node agent"}

    def __init__(self) -> None:
        super().__init__("")

    def names(self) -> dict[str, str]:
        """Return nothing: the pod is asked for by its uid."""
        return {}

    def unavailable_reason(self) -> str:
        """Return nothing: there is one pod only."""
        return ""

    def processes(self, uid: str | None = None) -> list[PodProcess]:
        """Return nothing: what an earlier container has left ends with the pod."""
        return []

    def network_of(self, uid: str) -> int:
        """Open the own network namespace."""
        return os.open(self._proc / "self" / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
