"""State that all controllers share, and the commands to and reports from the node."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from faultset.collector.ipc.channel import Message, Request
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.platforms.objects import EventRecorder
from faultset.core.times import SECOND_NS
from faultset.datasets.telemetry_formats.kubernetes_objects import Object


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A mounted folder: either the files of a ConfigMap or Secret, or a named volume.

    Exactly one of `files` and `volume` is set. A volume named `pod/...` is removed with its pod.
    """

    path: str
    files: Mapping[str, str] | None = None
    volume: str | None = None


@dataclass(frozen=True, kw_only=True)
class StartContainer:
    """Start a container and, after `program_s`, its program; the node reports Started or StartFailed."""

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
    """Send a signal such as `KILL` to a container or only to its main process.

    The response is whether the container is running.
    """

    uid: str
    container: str
    signal: str
    main_only: bool = False


@dataclass(frozen=True, kw_only=True)
class LimitContainer(Request[bool]):
    """Change the limits of a running container; the response is whether the container is running."""

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
    """Remove the files of a deleted pod, except its logs."""

    uid: str


@dataclass(frozen=True, kw_only=True)
class ProbeContainer:
    """Probe a container; the node reports ProbeResult.

    With a path the probe is an HTTP request, without one a TCP connection.
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
class _ContainerReport:
    uid: str
    container: str
    attempt: int
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class Started(_ContainerReport):
    """A container was started."""


@dataclass(frozen=True, kw_only=True)
class StartFailed(_ContainerReport):
    """A container could not be started, for example because its program does not exist."""

    message: str


@dataclass(frozen=True, kw_only=True)
class ContainerExited(_ContainerReport, Message):
    """All processes of a container have ended; the exit code comes from the main process."""

    exit_code: int
    out_of_memory: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ProbeResult(_ContainerReport):
    """The result of a probe; `failure` is empty if it passed."""

    purpose: Literal["readiness", "liveness"]
    failure: str = ""


Report = Started | StartFailed | ContainerExited | ProbeResult


@dataclass(frozen=True, kw_only=True)
class StartTimes:
    """Delays of a starting container, in seconds.

    Attributes
    ----------
    sandbox_s
        From scheduling a pod to starting its containers.
    relist_s
        From the end of a container until the kubelet notices.
    program_s
        From starting a container until its program runs.
    probe_retry_s
        Longest time between readiness probes until the first success; None for the period in the probe's definition.
    """

    sandbox_s: float = 0.0
    relist_s: float = 0.0
    program_s: float = 0.0
    probe_retry_s: float | None = None


NO_DELAYS = StartTimes()
WITHOUT_LOAD = StartTimes(probe_retry_s=0.1)
"""Used until the load starts, because nothing measures the delays before then."""
AS_ON_A_CLUSTER = StartTimes(sandbox_s=0.6, relist_s=1.0, program_s=1.5)
"""Medians measured on a single-node cluster with containerd and a local image.

`program_s` is the time that a program takes to import its modules under its CPU limit. The embedded platform must
simulate it, because its programs are forks of a process that has already imported the modules.
"""


NODE = "node-1"
HOSTNAME_LABEL = "kubernetes.io/hostname"
_SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(kw_only=True)
class Context:
    """State shared by the controllers of one cluster."""

    store: ObjectStore
    events: EventRecorder
    clock: Callable[[], int]
    rng: random.Random
    service_address: Callable[[], str]
    pod_address: Callable[[], str]
    factor: float = 1.0
    start_times: StartTimes = NO_DELAYS
    api_socket: str | None = None
    due_ns: int | None = field(default=None)
    _hashes: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])

    @property
    def now_ns(self) -> int:
        return self.clock()

    def requeue(self, at_ns: int) -> None:
        """Request the next `reconcile` at `at_ns` or earlier."""
        if self.due_ns is None or at_ns < self.due_ns:
            self.due_ns = at_ns

    def scaled_ns(self, seconds: float) -> int:
        """Return a delay of a real cluster, multiplied by the back-off factor."""
        return int(seconds * self.factor * SECOND_NS)

    def template_hash(self, workload: Object) -> str:
        """Return the hash of a workload's pod template, cached by generation."""
        key = workload["metadata"]["uid"], workload["metadata"]["generation"]
        if key not in self._hashes:
            self._hashes[key] = template_hash(workload["spec"]["template"])
        return self._hashes[key]

    def suffix(self) -> str:
        return "".join(self.rng.choice(_SUFFIX_CHARACTERS) for _ in range(5))


def template_hash(template: Mapping[str, Any]) -> str:
    """Return the pod-template-hash of a Deployment: eight to ten characters without vowels."""
    digits = str(zlib.crc32(json.dumps(template, sort_keys=True).encode())).rjust(8, "0")
    return "".join(_SUFFIX_CHARACTERS[ord(digit) % len(_SUFFIX_CHARACTERS)] for digit in digits)
