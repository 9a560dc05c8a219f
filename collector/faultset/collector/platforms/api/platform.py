"""The seam between faults and the place where an application runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError

Object = dict[str, Any]
"""A Kubernetes object as a plain dict: apiVersion, kind, metadata, spec, status, data."""


class ObjectNotFound(PlatformError):
    """No object of that kind and name exists."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Drop a share of the packets that a pod sends."""

    probability: float


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Hold back all that a pod sends."""

    latency_s: float
    jitter_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Let nothing pass between a pod and anyone, in either direction."""


Impairment = Loss | Delay | Partition


class Source(Protocol):
    """One table of telemetry, readable for a window after it has passed."""

    table: str

    @property
    def interval_s(self) -> float | None:
        """Seconds between samples; None where rows come when something happens."""
        ...

    def ready(self) -> bool:
        """Say whether telemetry is arriving."""
        ...

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `[start_ns, end_ns)` in the table's schema, without the `episode` column."""
        ...

    def close(self) -> None:
        """Let go of files and connections; may be called twice."""
        ...


@runtime_checkable
class AnswersForOneSeries(Protocol):
    """A source of metrics that answers for one series much sooner than for all, as over a network."""

    def recent(self, metric: str, pod: str, window_s: float) -> pa.Table:
        """Return time (nanoseconds, UTC) and value of one pod's metric in the last `window_s` seconds, in order."""
        ...


class Platform(Protocol):
    """Where one application runs during one episode.

    The verbs that change something (`patch`, `delete`, `exec` with `undo`, `impair`) write their inverse to the
    journal and flush it before they act; see `faultset.collector.platforms.journal.journal`.
    """

    name: str
    app: AppSpec
    ready_timeout_s: float
    """How long an application may take to become ready."""

    def deploy(self) -> None:
        """Apply the application's manifests and start telemetry; return without waiting for readiness."""
        ...

    def start_load(self, *, seed: int, rate_rps: float, mix: str) -> None:
        """Start the open-loop load against the application's entry."""
        ...

    def step_load(self, factor: float) -> None:
        """Change the load to `factor` times its planned rate, from now on."""
        ...

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace objects; not journaled, undo of `delete` uses it."""
        ...

    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""
        ...

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind that carry the labels."""
        ...

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""
        ...

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo applies it again (nothing for pods, which their owner replaces)."""
        ...

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output; raise PlatformError when it fails."""
        ...

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        ...

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Disturb all that the pod sends until undone; the lease expires by itself when the collector dies."""
        ...

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets of the pod the current impairment has disturbed so far."""
        ...

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Return once `condition` holds; raise PlatformError naming `what` after `timeout_s`."""
        ...

    def undo(self) -> None:
        """Replay the journal's open inverses backwards, then restart pods that wait in a back-off."""
        ...

    def sources(self) -> Sequence[Source]:
        """Return the sources of every table."""
        ...

    def host_load(self) -> dict[str, Any]:
        """Return how loaded the host was during the episode: load average, worst scheduling delay in ms."""
        ...

    def clock_offsets_s(self) -> dict[str, float]:
        """Return how far the clock of each table's source is ahead of the collector's, in seconds."""
        ...

    def stop_load(self) -> None:
        """Stop the load; requests without an answer count as unfinished."""
        ...

    def teardown(self) -> None:
        """End every process and remove every object of the episode; may be called twice."""
        ...
