"""A few series for each service, for methods whose cost grows with the square of their number or faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.baselines.stats.scaling import Matrix, sustained

if TYPE_CHECKING:
    from faultset.baselines.features.windows import Windows
    from faultset.datasets.views import EpisodeView

SUSTAINED = 3


def most_deviating(episode: EpisodeView, windows: Windows, since: Matrix, *, per_service: int) -> list[int]:
    """Choose, for each service, the series that deviate longest and most, each of another role.

    Parameters
    ----------
    since
        [T, d] test window in healthy spreads.

    Returns
    -------
    list of int
        Columns in order; series that never moved are not among them.
    """
    lasting = sustained(since, min(SUSTAINED, len(since))).max(axis=0)
    role = episode.catalogue.role_of
    taken: dict[str, set[str]] = {}
    chosen: list[int] = []
    for column in sorted(range(len(windows.series)), key=lambda place: (-lasting[place], windows.series[place])):
        service, metric = windows.series[column]
        roles = taken.setdefault(service, set())
        if lasting[column] > 0 and len(roles) < per_service and role(metric) not in roles:
            roles.add(role(metric))
            chosen.append(column)
    return sorted(chosen)
