"""What the kubelet asks the node to do, and what the node reports back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from faultset.collector.ipc.channel import Message, Request


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
