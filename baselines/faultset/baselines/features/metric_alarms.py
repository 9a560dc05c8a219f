"""Which services' resource metrics left their usual range, as alarms that the methods on events can take in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.features.windows import localization_windows
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultset.datasets.views import EpisodeView

ALARM_ROLES = frozenset({"cpu", "memory"})
ALARM_SIGMAS = 6.0


@dataclass(frozen=True, kw_only=True)
class MetricAlarm:
    """A metric of a service that is far from what it was."""

    service: str
    metric: str
    share: float
    """Share of the samples since the alarm that are outside."""
    z: float
    """Distance of the farthest one, in spreads."""


def metric_alarms(
    episode: EpisodeView, alarm_ns: int, *, roles: frozenset[str] = ALARM_ROLES, sigmas: float = ALARM_SIGMAS
) -> list[MetricAlarm]:
    """Find the resource metrics that left their range, farthest first; at most one for a service and role.

    A spread is at least what services differ by in the same metric: a reference of a few samples says little about
    how much one series moves, and a busy store is not told by a second of CPU.
    """
    windows = localization_windows(episode, alarm_ns, before=0)
    catalogue = episode.catalogue
    role_of = [catalogue.role_of(metric) for _, metric in windows.series]
    kept = np.flatnonzero([role in roles for role in role_of])
    if windows.empty or not len(kept):
        return []
    series = [windows.series[column] for column in kept]
    center, spread = mean_and_sd(windows.reference[:, kept])
    scale = np.maximum(spread, level_spread(center, series))
    z = np.abs(deviations(windows.values[:, kept], center, scale, np.zeros_like(windows.absent[:, kept])))
    farthest: dict[tuple[str, str], MetricAlarm] = {}
    for column in np.argsort(-z.max(axis=0, initial=0.0), kind="stable"):
        worst = float(z[:, column].max())
        if worst <= sigmas:
            break
        service, metric = series[column]
        found = MetricAlarm(service=service, metric=metric, share=float((z[:, column] > sigmas).mean()), z=worst)
        farthest.setdefault((service, role_of[kept[column]]), found)
    return list(farthest.values())


def level_spread(center: Matrix, series: Sequence[tuple[str, str]]) -> Matrix:
    """Standard deviation over services of the level of each column's metric."""
    names, code = np.unique([metric for _, metric in series], return_inverse=True)
    count = np.maximum(np.bincount(code, minlength=len(names)), 1)
    mean = np.bincount(code, weights=center, minlength=len(names)) / count
    squares = np.bincount(code, weights=(center - mean[code]) ** 2, minlength=len(names))
    return np.sqrt(squares / count)[code]
