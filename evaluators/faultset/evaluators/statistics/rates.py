"""Alarms per hour, with an interval that holds for events that come in bursts as well."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from faultset.evaluators.statistics.clusters import cluster_sums
from faultset.evaluators.statistics.estimates import Estimate, unknown
from faultset.evaluators.statistics.intervals import LEVEL, Z95, spread_over_clusters


def hourly_rate(counts: Sequence[float], hours: Sequence[float], keys: Sequence[Hashable]) -> Estimate:
    """Events per watched hour.

    The interval is that of a Poisson count with Jeffreys' prior. Where clusters differ by more than a Poisson count
    does, count and hours are divided by how much more. Without any event the lower end is 0 and the upper one about
    2.5 divided by the hours.

    Parameters
    ----------
    counts, hours
        Of each episode; a count that is a mean over seeds may have a fraction.
    """
    if sum(hours) <= 0:
        return unknown("no observed time without a fault")
    counts_by_cluster, hours_by_cluster = cluster_sums(counts, keys), cluster_sums(hours, keys)
    count, total = float(counts_by_cluster.sum()), float(hours_by_cluster.sum())
    found = Estimate(value=count / total, n=len(counts), k=count)
    low, high = _ends(count, total, counts_by_cluster, hours_by_cluster)
    return found.with_interval(low, high, method=f"Poisson with dispersion over {len(counts_by_cluster)} clusters")


def _ends(count: float, hours: float, counts: np.ndarray, hours_each: np.ndarray) -> tuple[float, float]:
    from scipy.special import gammaincinv, stdtrit

    excess, dispersion = 0.0, 1.0
    if count > 0 and len(counts) > 1:
        spread = spread_over_clusters(counts - count / hours * hours_each, hours_each)
        seen = max(1.0, float(spread.variance) / count)
        excess = (seen - 1) / seen
        student = float(stdtrit(max(spread.clusters / 2 - 1, 1.0), (1 + LEVEL) / 2))
        dispersion = seen * (1 + ((student / Z95) ** 2 - 1) * excess)
    events, time = count / dispersion, hours / dispersion
    tail = (1 - LEVEL) / 2
    low = float(gammaincinv(events + 0.5 * (1 - excess), tail))
    high = float(gammaincinv(events + 0.5 + excess, 1 - tail))
    return (low / time if count else 0.0), high / time
