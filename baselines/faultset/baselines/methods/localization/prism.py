"""PRISM: services that are anomalous inside as well as at their interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.windows import localization_windows
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Pooling = Literal["max", "mean"]
Combination = Literal["additive", "conjunctive"]
INTERNAL = frozenset({"cpu", "throttling", "memory", "disk", "descriptors", "threads", "saturation"})
EXTERNAL = frozenset({"latency", "errors", "traffic"})


def combine_properties(internal: Matrix, external: Matrix, combination: Combination = "additive") -> Matrix:
    """Return the root cause score of each service from its largest internal and external deviations.

    Additive (equation 3): s - ln(1 + s), where s is their sum. Conjunctive (equation 4): the smaller of the two.

    >>> combine_properties(np.array([2.0, 0.0]), np.array([4.0, 5.0])).round(3).tolist()
    [4.054, 3.208]
    >>> combine_properties(np.array([2.0, 0.0]), np.array([4.0, 5.0]), "conjunctive").tolist()
    [2.0, 0.0]
    """
    if combination == "conjunctive":
        return np.minimum(internal, external)
    total = internal + external
    return total - np.log1p(total)


@baseline(
    "prism",
    title="PRISM",
    task="localization",
    paper="Pham, Graph-free root cause analysis, arXiv 2601.21359, 2026",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T)",
    reconstruction=True,
    open_settings={"pooling_of_time": ("max", "mean"), "combination": ("additive", "conjunctive")},
    departures=(
        "The role of a metric decides whether it is internal; traffic, on which the paper is silent, is external.",
        "Spreads are at least 1 % of the level and a quarter of the metric's spread over all services.",
        "Series that stop deviate by ten spreads.",
    ),
)
class PRISM(TrainingFreeBaseline):
    """Rank services by their largest internal plus their largest external deviation.

    A fault starts inside a service, so its resources deviate. It spreads through interfaces, so other services only
    deviate in latency, errors and traffic.

    Parameters
    ----------
    pooling_of_time
        How the deviations of a series since the alarm are pooled. The paper leaves this open.
    combination
        `additive` is the paper's default.

    References
    ----------
    Pham, Graph-free root cause analysis, arXiv 2601.21359, 2026.
    """

    def __init__(self, *, pooling_of_time: Pooling = "max", combination: Combination = "additive") -> None:
        self.pooling_of_time: Pooling = pooling_of_time
        self.combination: Combination = combination

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their combined deviation."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        mean, sd = mean_and_sd(windows.reference)
        scale = with_metric_floor(sd, windows.series)
        z = np.abs(deviations(windows.values, mean, scale, windows.absent))
        score = z.max(axis=0) if self.pooling_of_time == "max" else z.mean(axis=0)
        roles = [episode.catalogue.role_of(metric) for _, metric in windows.series]
        names = sorted(set(windows.services))
        owner = np.searchsorted(names, windows.services)
        pooled = []
        for property_roles in (INTERNAL, EXTERNAL):
            chosen = np.flatnonzero([role in property_roles for role in roles])
            largest = np.zeros(len(names))
            np.maximum.at(largest, owner[chosen], score[chosen])
            pooled.append(largest)
        total = combine_properties(pooled[0], pooled[1], self.combination)
        classified = np.flatnonzero([role in INTERNAL | EXTERNAL for role in roles])
        order = sorted(classified.tolist(), key=lambda column: (-score[column], windows.series[column]))
        evidence = [
            Evidence(
                service=windows.series[column][0],
                subject=windows.series[column][1],
                score=float(score[column]),
                detail=f"{'internal' if roles[column] in INTERNAL else 'external'}, healthy spreads",
            )
            for column in order[:10]
        ]
        metrics = {windows.series[column]: float(score[column]) for column in order}
        return Ranking.of(dict(zip(names, total.tolist(), strict=True)), episode.services, evidence, metrics)
