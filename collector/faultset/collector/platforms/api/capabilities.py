"""What only some faults need of a platform: a small protocol for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from faultset.collector.platforms.api.impairments import Impairment
from faultset.collector.spec.credentials import SecretKey
from faultset.core.errors import PlatformError

Capability = Literal[
    "loss",
    "delay",
    "partition",
    "bandwidth",
    "abort",
    "reset",
    "hold",
    "course",
    "kill",
    "exec",
    "secret",
    "resize",
    "runtime",
]
"""What a fault can declare that it needs.

`loss`, `delay`, `partition` and `bandwidth` impair the network of a pod, `abort`, `reset` and `hold` single requests to
it (all `NetworkImpairer`), `course` lets impairments change over time, `kill` ends a container's process
(`ContainerKiller`), `exec` runs a command in a pod (`CommandExecutor`), `secret` changes a Secret without its values in
the journal (`SecretEditor`), `resize` changes the resources of a running pod through its object, and `runtime` wants an
application of our own programs, which know builds and admin commands.
"""


@runtime_checkable
class NetworkImpairer(Protocol):
    """A platform that can impair the network of a pod."""

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair the pod until undone; the impairment ends by itself when the collector dies.

        Raises
        ------
        PlatformError
            The platform cannot do that.
        """
        ...

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets of the pod the current impairment has met so far."""
        ...


@runtime_checkable
class ContainerKiller(Protocol):
    """A platform that can kill the process of a container."""

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        ...


@runtime_checkable
class PodFailer(Protocol):
    """A platform that has a way of its own to let a pod do nothing."""

    def fail(self, pod: str) -> str:
        """Let the pod's containers run an image that does nothing until undone; return that image."""
        ...


@runtime_checkable
class DisturbanceReporter(Protocol):
    """A platform that says by itself which pods it disturbs, instead of counting packets."""

    def disturbance_evidence(self, pod: str) -> str | None:
        """Return a sentence on what is done to the pod at this moment; None when nothing is."""
        ...


@runtime_checkable
class CommandExecutor(Protocol):
    """A platform that can run commands in pods."""

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output.

        Parameters
        ----------
        undo
            Command that undoes this one; it runs in whichever pod has taken the place of this one by then.

        Raises
        ------
        PlatformError
            The command cannot be run, or it ends with a code other than 0.
        """
        ...


@runtime_checkable
class SecretEditor(Protocol):
    """A platform that can change a Secret without its values in the journal."""

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Give a key of a Secret another text, which only the Secret holds.

        Parameters
        ----------
        copied_from
            A key of another Secret with the text of before, from which the undo copies it.

        Raises
        ------
        PlatformError
            That key has another text, or there is none.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class HostLoad:
    """How busy the hosts were since the load was started; None is not measured.

    Attributes
    ----------
    load_average, load_average_per_core
        The system's load average over a minute; of several nodes the highest.
    cores, nodes
        Size of the machine or cluster.
    worst_delay_ms
        How late a waiting process got the processor at worst, on any node.
    worst_scrape_lag_ms
        How late metrics were sampled at worst.
    collector_delay_ms
        How late the collector's own process got the processor at worst, where it is not on a node.
    collector_memory_mib, api_requests
        What the collector itself has used.
    """

    load_average: float | None = None
    load_average_per_core: float | None = None
    cores: int | None = None
    nodes: int | None = None
    worst_delay_ms: float | None = None
    worst_scrape_lag_ms: float | None = None
    collector_delay_ms: float | None = None
    collector_memory_mib: int | None = None
    api_requests: int | None = None

    @property
    def worst_ms(self) -> float | None:
        """The longest of the delays that were measured, in milliseconds; None when none was."""
        delays = (self.worst_delay_ms, self.worst_scrape_lag_ms, self.collector_delay_ms)
        return max((delay for delay in delays if delay is not None), default=None)

    def as_record(self) -> dict[str, Any]:
        """Return what was measured, for the label."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@runtime_checkable
class HostLoadMeter(Protocol):
    """A platform that measures how busy its hosts are."""

    def host_load(self) -> HostLoad:
        """Return the load since `start_load`."""
        ...


def host_load(platform: object) -> HostLoad:
    """Return how busy the hosts of a platform are; nothing is measured where it is no `HostLoadMeter`."""
    return platform.host_load() if isinstance(platform, HostLoadMeter) else HostLoad()


@runtime_checkable
class ProcessWatcher(Protocol):
    """A platform with processes of its own, without which an episode cannot go on."""

    def check_processes(self) -> None:
        """Raise PlatformError when one of them has ended or was stopped; quick enough to be called every second."""
        ...


def selects_requests(platform: object) -> bool:
    """Tell whether requests are impaired by their caller and by a share; otherwise all to a pod or a path are.

    A platform that cannot has an attribute `selects_requests` that is false.
    """
    return bool(getattr(platform, "selects_requests", True))


_T = TypeVar("_T")


def require(platform: object, protocol: type[_T]) -> _T:
    """Return the platform as one that has a capability.

    >>> class Simple:
    ...     name = "simple"
    >>> require(Simple(), ContainerKiller)
    Traceback (most recent call last):
    ...
    faultset.core.errors.PlatformError: platform simple is no ContainerKiller; the fault must declare what it needs

    Raises
    ------
    PlatformError
        It has not; a fault that declares its needs is left out of campaigns on such a platform.
    """
    if not isinstance(platform, protocol):
        name = getattr(platform, "name", type(platform).__name__)
        raise PlatformError(f"platform {name} is no {protocol.__name__}; the fault must declare what it needs")
    return platform
