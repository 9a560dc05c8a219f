"""Localizers that rank series by how far they leave normal, and services by their first series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.features.series_scores import rank_by_series
from faultset.baselines.features.windows import localization_windows
from faultset.baselines.stats.scaling import deviations, mean_and_sd, median_and_iqr

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@baseline(
    "nsigma",
    title="N-Sigma",
    task="localization",
    paper="Pham et al., RCAEval, WWW 2025 (as N-Sigma)",
    kind="method",
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T), S series of T samples",
    departures=(
        "Two-sided: the published code takes the signed maximum and never finds what drops.",
        "Standard deviations are at least one percent of the mean.",
        "Series that stop count as deviating by ten sigma.",
    ),
)
class NSigma(Untrained):
    """Rank services by the largest |z| of any of their series.

    References
    ----------
    Pham et al., RCAEval: a benchmark for root cause analysis of microservice systems, WWW 2025.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by the largest deviation since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        z = np.abs(deviations(windows.values, *mean_and_sd(windows.reference), windows.absent))
        return rank_by_series(z.max(axis=0), windows.series, episode.services, detail="largest |z|")


@baseline(
    "baro",
    title="BARO (scorer)",
    task="localization",
    paper="Pham, Ha, Zhang, BARO, FSE 2024",
    kind="method",
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T), S series of T samples",
    departures=(
        "The scorer only: the alarm comes from the named detector; baro-own finds its own change point.",
        "Two-sided: the published code takes the signed maximum and never finds what drops.",
        "Interquartile ranges are at least one percent of the median; the published code divides by one where "
        "the range is zero and so lets raw units decide.",
    ),
)
class Baro(Untrained):
    """Rank services by the largest distance from the median in interquartile ranges.

    References
    ----------
    Pham, Ha, Zhang, BARO: robust root cause analysis for microservices via multivariate Bayesian online
    change point detection, FSE 2024.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by the largest robust deviation since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        z = np.abs(deviations(windows.values, *median_and_iqr(windows.reference), windows.absent))
        return rank_by_series(z.max(axis=0), windows.series, episode.services, detail="largest |x - median| / IQR")
