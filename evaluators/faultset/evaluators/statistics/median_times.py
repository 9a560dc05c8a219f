"""Medians of the time until a method is right."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from faultset.evaluators.statistics.clusters import clustered_median
from faultset.evaluators.statistics.estimates import Estimate, unknown


def median_time(times: Mapping[str, float] | None, clusters: Mapping[str, Hashable]) -> Estimate:
    """Return the median over episodes of the seconds after the onset up to which a method had to see them.

    Parameters
    ----------
    times
        Episode -> seconds, infinite for a miss; None where no budgets of evidence were tried.
    clusters
        Episode that counts -> its cluster.
    """
    timed = [episode for episode in clusters if times and episode in times]
    if not times or not timed:
        return unknown("no budgets of evidence were tried")
    return clustered_median([times[episode] for episode in timed], [clusters[episode] for episode in timed])
