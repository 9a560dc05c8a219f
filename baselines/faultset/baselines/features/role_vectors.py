"""A vector for each service and step whose places mean the same in every service, application and episode: its roles.

Each episode is measured by its own reference, so that vectors of different episodes can be put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.features.held_out import CLIP, LEAST_SAMPLES, held_out_deviations
from faultset.baselines.features.windows import Windows, detection_windows
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.datasets.metrics.roles import ROLES

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@dataclass(frozen=True, kw_only=True)
class RoleVectors:
    """log(1 + largest |z|) over the series of each role of each service; 0 where it has none."""

    windows: Windows
    services: tuple[str, ...]
    vectors: Matrix
    """[n + T, S, R] in order of time: the reference, each block by the others, then what follows it."""

    @property
    def healthy(self) -> int:
        """Number of steps of the reference."""
        return len(self.windows.reference)


def role_vectors(episode: EpisodeView) -> RoleVectors | None:
    """Read an episode's role vectors; None when there are too few healthy samples to hold any out.

    A view that ends with its reference has only healthy steps.
    """
    return episode.once("role vectors", lambda: _role_vectors(episode))


def _role_vectors(episode: EpisodeView) -> RoleVectors | None:
    windows = detection_windows(episode)
    if not windows.series or len(windows.reference) < LEAST_SAMPLES:
        return None
    mean, sd = mean_and_sd(windows.reference)
    later = deviations(windows.values, mean, with_metric_floor(sd, windows.series), windows.absent)
    z = np.vstack([held_out_deviations(windows.reference, windows.series), np.clip(later, -CLIP, CLIP)])
    role_of = episode.catalogue.role_of
    services = sorted(set(windows.services))
    place = {name: number for number, name in enumerate(services)}
    code = np.array([place[s] * len(ROLES) + ROLES.index(role_of(metric)) for s, metric in windows.series])
    order = np.argsort(code, kind="stable")
    found, starts = np.unique(code[order], return_index=True)
    vectors = np.zeros((len(z), len(services) * len(ROLES)))
    vectors[:, found] = np.log1p(np.maximum.reduceat(np.abs(z)[:, order], starts, axis=1))
    vectors = vectors.reshape(len(z), len(services), len(ROLES))
    vectors.flags.writeable = False
    return RoleVectors(windows=windows, services=tuple(services), vectors=vectors)


def healthy_sequences(episodes: Sequence[EpisodeView]) -> list[Matrix]:
    """Return [steps, R] of every service of every training episode; none of a service without series."""
    read = [found for found in map(role_vectors, episodes) if found is not None]
    return [found.vectors[:, service] for found in read for service in range(len(found.services))]
