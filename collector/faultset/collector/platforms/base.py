"""What faults and episodes may ask of a platform."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NoReturn

from faultset.collector.load.workloads.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.impairments import Impairment, impairment_record
from faultset.collector.platforms.objects import Object
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
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
"""What a fault can declare that it needs; `PlatformHost.unsupported_needs` says which of them a host lacks.

`loss`, `delay`, `partition` and `bandwidth` impair the network of a pod, `abort`, `reset` and `hold` single requests to
it (all by `Platform.impair`), `course` lets impairments change over time, `kill` ends a container's process, `exec`
runs a command in a pod, `secret` changes a Secret without its values in the journal, `resize` changes the resources
of a running pod through its object, and `runtime` wants an application of our own programs, which know builds and
admin commands.
"""


class CannotStart(PlatformError):
    """The application cannot start on this host, however often it is tried."""


class NotSupported(PlatformError):
    """This kind of platform cannot do that at all."""


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


class Platform(ABC):
    """What faults and checks see of a platform: Kubernetes objects, and the telemetry that is recorded.

    The verbs that change something write their undo operation to the journal before they act. A platform overrides
    what it can do of `exec`, `kill`, `impair` and `change_secret`; a fault that declares its needs is left out of
    campaigns on hosts that cannot.
    """

    name: str
    app: AppSpec
    selects_requests: ClassVar[bool] = True
    """Whether requests are impaired by their caller and by a share; otherwise all to a pod or a path are."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, Source]:
        """The source of every table, by the table's name."""

    @abstractmethod
    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace objects; not journaled."""

    @abstractmethod
    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""

    @abstractmethod
    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind that carry the labels."""

    @abstractmethod
    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""

    @abstractmethod
    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo applies it again (nothing for pods, which their owner replaces)."""

    @abstractmethod
    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Return once `condition` holds; raise PlatformError naming `what` after `timeout_s`."""

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
        self._refuse("run commands in pods", "exec")

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        self._refuse("kill containers", "kill")

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair the pod until undone; the impairment ends by itself when the collector dies."""
        self._refuse("impair networks", impairment_record(impairment)["kind"])

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets of the pod the current impairment has met so far."""
        self._refuse("impair networks", "loss")

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
        self._refuse("change Secrets", "secret")

    def fail(self, pod: str) -> str | None:
        """Let the pod's containers run an image that does nothing until undone, and return that image.

        None where the platform has no way of its own, so that the image is to be patched.
        """
        return None

    def disturbance_evidence(self, pod: str) -> str | None:
        """Return a sentence on how the pod's network is disturbed at this moment; None when it is not."""
        packets = self.impaired_packets(pod)
        return f"{packets} packets of {pod} disturbed" if packets else None

    def _refuse(self, what: str, need: str) -> NoReturn:
        raise NotSupported(f"platform {self.name} cannot {what}; the fault must declare that it needs {need}")


class EpisodePlatform(Platform):
    """What runs an episode: a platform with a beginning, a load and an end."""

    ready_timeout_s: float
    """How long an application may take to become ready."""

    @abstractmethod
    def deploy(self) -> None:
        """Apply the application's manifests and start telemetry; return without waiting for readiness."""

    @abstractmethod
    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        """Start the load against the application's entry; `traffic` says how the rate moves and where clients are."""

    @abstractmethod
    def step_load(self, factor: float) -> None:
        """Change the load to `factor` times its planned rate, from now on; nothing happens without a load."""

    @abstractmethod
    def stop_load(self) -> None:
        """Stop the load; requests without an answer count as unfinished."""

    @abstractmethod
    def undo(self) -> None:
        """Undo every change that the journal holds, newest first, then restart pods that wait in a back-off."""

    @abstractmethod
    def clock_offsets_s(self) -> dict[str, float]:
        """Return how far the clock of each table's source is ahead of the collector's, in seconds."""

    @abstractmethod
    def teardown(self) -> None:
        """End every process and remove every object of the episode; may be called twice."""

    def host_load(self) -> HostLoad:
        """Return how busy the hosts were since `start_load`; by default nothing is measured."""
        return HostLoad()

    def check_processes(self) -> None:
        """Raise PlatformError when something has ended or was stopped without which the episode cannot go on.

        Called every second.
        """
