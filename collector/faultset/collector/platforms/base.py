"""The interface of platforms that faults and episodes use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NoReturn

from faultset.collector.load.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.impairments import Impairment, encode_impairment
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.credentials import SecretKey
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

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
"""Capabilities that faults may require; `PlatformHost.unsupported_needs` returns the missing ones.

`loss`, `delay`, `partition` and `bandwidth` impair a pod's network; `abort`, `reset` and `hold` impair individual
requests to it. All use `Platform.impair`. `course` varies an impairment over time. `kill` kills a container's process.
`exec` runs a command in a pod. `secret` changes a Secret without writing its values to the journal. `resize` changes
the resources of a running pod. `runtime` requires an application built from our programs, which support builds and
administration commands.
"""


class CannotStart(PlatformError):
    """The application can never start on this host; retries are useless."""


class NotSupported(PlatformError):
    """The platform does not support an operation."""


@dataclass(frozen=True, kw_only=True)
class HostLoad:
    """Load of the hosts since the client load started; None means not measured.

    Attributes
    ----------
    load_average, load_average_per_core
        The one-minute load average; on a cluster, of the busiest node.
    cores, nodes
        Number of CPU cores and nodes.
    worst_delay_ms
        Worst scheduling delay of a process on any node.
    worst_scrape_lag_ms
        Worst delay of a scrape of metrics.
    collector_delay_ms
        Worst scheduling delay of the collector, if it does not run on a node.
    collector_memory_mib, api_requests
        Memory and API requests that the collector used.
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
        """The longest measured delay in milliseconds; None if none was measured."""
        delays = (self.worst_delay_ms, self.worst_scrape_lag_ms, self.collector_delay_ms)
        return max((delay for delay in delays if delay is not None), default=None)

    def as_record(self) -> dict[str, Any]:
        """Return the measured values for the label."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Platform(ABC):
    """Interface through which faults and checks use Kubernetes objects and recorded telemetry.

    Every verb that changes something, except `apply`, writes its undo operation to the journal first. A platform
    overrides `exec`, `kill`, `impair` and `change_secret` if it supports them. Campaigns skip faults whose declared
    needs a host lacks.
    """

    name: str
    app: AppSpec
    selects_requests: ClassVar[bool] = True
    """Whether impairments of requests can select a caller and a share; otherwise they affect all requests."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, Source]:
        """The sources of telemetry by table name."""

    @abstractmethod
    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace objects; not journaled."""

    @abstractmethod
    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""

    @abstractmethod
    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind with the labels."""

    @abstractmethod
    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""

    @abstractmethod
    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo creates it again, except pods, which their owner replaces."""

    @abstractmethod
    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait until `condition` holds; after `timeout_s`, raise a PlatformError that names `what`."""

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output.

        Parameters
        ----------
        undo
            Command that undoes this one; it runs in this pod or its replacement.

        Raises
        ------
        PlatformError
            The command cannot be run or its exit code is not 0.
        """
        self._refuse("run commands in pods", "exec")

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; the pod's restart policy applies."""
        self._refuse("kill containers", "kill")

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair the pod until the undo; the impairment also ends if the collector stops running."""
        self._refuse("impair networks", encode_impairment(impairment)["kind"])

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets of the pod the current impairment has affected so far."""
        self._refuse("impair networks", "loss")

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Change a key of a Secret; the journal does not contain the text.

        Parameters
        ----------
        copied_from
            A key of another Secret with the original text, which the undo copies.

        Raises
        ------
        PlatformError
            The key `copied_from` is missing or has a different text.
        """
        self._refuse("change Secrets", "secret")

    def fail(self, pod: str) -> str | None:
        """Replace the pod's images with the pause image until the undo; return the name of that image.

        Returns None if the platform has no special mechanism; the caller then patches the image.
        """
        return None

    def disturbance_evidence(self, pod: str) -> str | None:
        """Return a sentence about the current disturbance of the pod's network; None if there is none."""
        packets = self.impaired_packets(pod)
        return f"{packets} packets of {pod} disturbed" if packets else None

    def _refuse(self, action: str, need: str) -> NoReturn:
        raise NotSupported(f"platform {self.name} cannot {action}; the fault must declare that it needs {need}")


class EpisodePlatform(Platform):
    """A platform that can run an episode: deployment, load, undo and teardown."""

    ready_timeout_s: float
    """How long an application may take to become ready, in seconds."""

    @abstractmethod
    def deploy(self) -> None:
        """Apply the application's manifests and start telemetry; return without waiting for readiness."""

    @abstractmethod
    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        """Start the load on the application's entry service; `traffic` sets how the rate varies over time."""

    @abstractmethod
    def step_load(self, factor: float) -> None:
        """Change the load, if it runs, to `factor` times its planned rate."""

    @abstractmethod
    def stop_load(self) -> None:
        """Stop the load; unanswered requests count as unfinished."""

    @abstractmethod
    def undo(self, scope: str | None = None) -> None:
        """Undo all changes in the journal or in a scope, newest first; then restart pods in back-off."""

    @abstractmethod
    def clock_offsets_s(self) -> dict[str, float]:
        """Return table -> seconds by which the clock of its source is ahead of the collector's clock."""

    @abstractmethod
    def teardown(self) -> None:
        """End all processes and remove all objects of the episode; may be called twice."""

    def measure_host_load(self, *, reset: bool = False) -> HostLoad:
        """Return the load of the hosts, with delays since `start_load` or the last call with `reset`."""
        return HostLoad()

    def check_processes(self) -> None:
        """Raise PlatformError if a process that the episode needs has ended or is stopped; called every second."""
