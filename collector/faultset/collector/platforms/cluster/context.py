"""What every controller works with: the store, the time, and the commands to the node with its reports."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from faultset.collector.ipc.channel import Message, Request
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.platforms.objects import Object
from faultset.collector.platforms.observation.objects import EventRecorder
from faultset.core.times import SECOND_NS


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder that a container sees: files of a ConfigMap or Secret, or a named volume that is kept.

    Exactly one of `files` and `volume` is set. A volume whose name begins with `pod/` ends with its pod.
    """

    path: str
    files: Mapping[str, str] | None = None
    volume: str | None = None


@dataclass(frozen=True, kw_only=True)
class StartContainer:
    """Start one container of a pod, whose program begins after `program_s`; answered by Started or StartFailed."""

    pod: str
    uid: str
    container: str
    attempt: int
    service: str | None
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    address: str = ""
    cpu_limit: float | None = None
    memory_limit: int | None = None
    program_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SignalContainer(Request[bool]):
    """Send a signal, such as `KILL`, to a container or to its first process only; the answer says whether it runs."""

    uid: str
    container: str
    signal: str
    main_only: bool = False


@dataclass(frozen=True, kw_only=True)
class LimitContainer(Request[bool]):
    """Change the limits of a container in place; the answer says whether it runs."""

    uid: str
    container: str
    cpu_limit: float | None
    memory_limit: int | None


@dataclass(frozen=True, kw_only=True)
class RefreshMounts:
    """Rewrite the files of the ConfigMaps and Secrets that a container mounts."""

    uid: str
    container: str
    mounts: tuple[Mount, ...]


@dataclass(frozen=True, kw_only=True)
class ForgetPod:
    """Free what belonged to a pod that is gone, except its logs."""

    uid: str


@dataclass(frozen=True, kw_only=True)
class ProbeContainer:
    """Ask a container whether it is ready or alive; answered by ProbeResult.

    A path means an HTTP request, none a connection.
    """

    uid: str
    container: str
    attempt: int
    purpose: Literal["readiness", "liveness"]
    address: str
    port: int
    path: str | None
    timeout_s: float


Command = StartContainer | SignalContainer | LimitContainer | RefreshMounts | ForgetPod | ProbeContainer


@dataclass(frozen=True, kw_only=True)
class Started:
    """A container runs."""

    uid: str
    container: str
    attempt: int
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class StartFailed:
    """A container could not be started, for instance because its program does not exist."""

    uid: str
    container: str
    attempt: int
    time_ns: int
    message: str


@dataclass(frozen=True, kw_only=True)
class ContainerExited(Message):
    """A container's main process has ended and all other processes of the container with it."""

    uid: str
    container: str
    attempt: int
    time_ns: int
    exit_code: int
    out_of_memory: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What a container answered to a probe; `failure` is empty when it is well."""

    uid: str
    container: str
    attempt: int
    purpose: Literal["readiness", "liveness"]
    time_ns: int
    failure: str = ""


Report = Started | StartFailed | ContainerExited | ProbeResult


@dataclass(frozen=True, kw_only=True)
class StartTimes:
    """Waits on the way from a decision to a program that listens, in seconds.

    Attributes
    ----------
    sandbox_s
        From the scheduling of a pod to the start of its containers.
    noticed_s
        From the end of a container until the kubelet looks at the pod again.
    program_s
        From the start of a container until its program runs.
    probe_again_s
        From a failed readiness probe of a container that was never ready to the next one; None for as long as the
        probe says.
    """

    sandbox_s: float = 0.0
    noticed_s: float = 0.0
    program_s: float = 0.0
    probe_again_s: float | None = None


AT_ONCE = StartTimes()
BEFORE_CLIENTS = StartTimes(probe_again_s=0.1)
"""What holds until there are clients who could notice."""
AS_ON_A_CLUSTER = StartTimes(sandbox_s=0.6, noticed_s=1.0, program_s=1.5)
"""Medians on a single node, containerd, the image present: sandbox and task; the kubelet's relist; a program's imports
under the limit of its processor time. Here a program is a fork of a process that has imported all of it."""


_SAFE = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(kw_only=True)
class Context:
    """Shared state of one cluster's controllers."""

    store: ObjectStore
    events: EventRecorder
    clock: Callable[[], int]
    rng: random.Random
    service_address: Callable[[], str]
    pod_address: Callable[[], str]
    factor: float = 1.0
    start_times: StartTimes = AT_ONCE
    api_socket: str | None = None
    due_ns: int | None = field(default=None)
    _hashes: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])

    @property
    def now_ns(self) -> int:
        """The time in nanoseconds since 1970."""
        return self.clock()

    def requeue(self, at_ns: int) -> None:
        """Ask to be run again at `at_ns` at the latest."""
        if self.due_ns is None or at_ns < self.due_ns:
            self.due_ns = at_ns

    def scaled_ns(self, seconds: float) -> int:
        """Return a waiting time of the real cluster, scaled by the platform's back-off factor."""
        return int(seconds * self.factor * SECOND_NS)

    def template_hash(self, workload: Object) -> str:
        """Return the hash of a workload's pod template, which is computed once for each of its generations."""
        key = workload["metadata"]["uid"], workload["metadata"]["generation"]
        if key not in self._hashes:
            self._hashes[key] = template_hash(workload["spec"]["template"])
        return self._hashes[key]

    def suffix(self, length: int = 5) -> str:
        """Return random characters as in a pod's name."""
        return "".join(self.rng.choice(_SAFE) for _ in range(length))


def template_hash(template: Mapping[str, Any]) -> str:
    """Return the pod-template-hash of a Deployment's template: eight to ten characters without vowels."""
    digits = str(zlib.crc32(json.dumps(template, sort_keys=True).encode())).rjust(8, "0")
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in digits)
