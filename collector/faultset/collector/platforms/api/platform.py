"""The platform on which one application runs during one episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from faultset.collector.load.workloads.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.api.objects import Object
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError


class CannotStart(PlatformError):
    """The application cannot start on this host, however often it is tried."""


class Platform(Protocol):
    """What faults and checks see of a platform: Kubernetes objects, and the telemetry that is recorded.

    The verbs that change something (`patch`, `delete`) write their undo operation to the journal and flush it before
    they act; see `faultset.collector.platforms.journal.journal`. What only some platforms can do is in
    `faultset.collector.platforms.api.capabilities`.
    """

    name: str
    app: AppSpec

    @property
    def sources(self) -> Mapping[str, Source]:
        """The source of every table, by the table's name."""
        ...

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace objects; not journaled, the undo of `delete` uses it."""
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

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Return once `condition` holds; raise PlatformError naming `what` after `timeout_s`."""
        ...


class EpisodePlatform(Platform, Protocol):
    """What runs an episode: a platform with a beginning, a load and an end."""

    ready_timeout_s: float
    """How long an application may take to become ready."""

    def deploy(self) -> None:
        """Apply the application's manifests and start telemetry; return without waiting for readiness."""
        ...

    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        """Start the load against the application's entry; `traffic` says how the rate moves and where clients are."""
        ...

    def step_load(self, factor: float) -> None:
        """Change the load to `factor` times its planned rate, from now on."""
        ...

    def stop_load(self) -> None:
        """Stop the load; requests without an answer count as unfinished."""
        ...

    def undo(self) -> None:
        """Undo every change that the journal holds, newest first, then restart pods that wait in a back-off."""
        ...

    def clock_offsets_s(self) -> dict[str, float]:
        """Return how far the clock of each table's source is ahead of the collector's, in seconds."""
        ...

    def teardown(self) -> None:
        """End every process and remove every object of the episode; may be called twice."""
        ...
