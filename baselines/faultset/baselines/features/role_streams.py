"""A few streams instead of hundreds of series: how far each kind of signal of each service is from normal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.features.held_out import HeldOut
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

SIGNALS = {
    "cpu": "resources",
    "throttling": "resources",
    "memory": "resources",
    "disk": "resources",
    "threads": "resources",
    "descriptors": "resources",
    "network": "network",
    "traffic": "traffic",
    "latency": "quality",
    "errors": "quality",
    "saturation": "quality",
}
"""Five signals of the system as a whole; every other role is its state."""
STATE = "state"


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Largest |z| over the series of each stream, as log(1 + |z|)."""

    names: tuple[tuple[str, str], ...]
    normal: Matrix
    """[n, p] the reference, held out."""
    values: Matrix
    """[T, p]"""

    @property
    def both(self) -> Matrix:
        """[n + T, p] in order of time."""
        return np.vstack([self.normal, self.values])


def service_roles(episode: EpisodeView, found: HeldOut) -> Streams:
    """One stream for each service and role."""
    role = _role_of(episode)
    return _streams(found, lambda service, metric: (service, role(metric)))


def services(found: HeldOut) -> Streams:
    """One stream for each service."""
    return _streams(found, lambda service, _: (service, ""))


def system_signals(episode: EpisodeView, found: HeldOut) -> Streams:
    """One stream for each of five signals, over all services."""
    role = _role_of(episode)
    return _streams(found, lambda service, metric: ("", SIGNALS.get(role(metric), STATE)))


def _role_of(episode: EpisodeView) -> Callable[[str], str]:
    catalogue = episode.catalogue
    known: dict[str, str] = {}

    def role(metric: str) -> str:
        if metric not in known:
            known[metric] = catalogue.role_of(metric)
        return known[metric]

    return role


def _streams(found: HeldOut, stream_of: Callable[[str, str], tuple[str, str]]) -> Streams:
    keys = [stream_of(service, metric) for service, metric in found.windows.series]
    names = sorted(set(keys))
    place = {name: number for number, name in enumerate(names)}
    code = np.array([place[key] for key in keys])
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(len(names)))
    normal, values = (
        np.log1p(np.maximum.reduceat(np.abs(z)[:, order], starts, axis=1)) for z in (found.normal, found.z)
    )
    return Streams(names=tuple(names), normal=normal, values=values)
