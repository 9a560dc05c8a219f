"""The max-z rule: the service whose metrics deviate most comes first. Every other method has to be better than it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, Ranking, Untrained, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN, OWN_AND_PUBLISHED
from faultset.baselines.features.series_scores import largest_deviations, rank_by_series
from faultset.baselines.features.windows import detection_windows, localization_windows
from faultset.baselines.stats.scaling import (
    Matrix,
    deviations,
    mean_and_sd,
    median_and_mad,
    sustained,
    with_metric_floor,
)

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

SUSTAINED = 3
CLIP = 100.0
_PAPER = "Fang et al., arXiv 2510.04711 (SimpleRCA-like, metrics only); rationale in arXiv 2406.05014"


def robust_deviations(
    reference: Matrix, values: Matrix, absent: np.ndarray, series: tuple[tuple[str, str], ...]
) -> Matrix:
    """|z| by the median and the larger of the two spreads, capped.

    The median absolute deviation alone is zero for a series that is idle more than half of the time.
    """
    center, mad = median_and_mad(reference)
    _, sd = mean_and_sd(reference)
    scale = with_metric_floor(np.maximum(mad, sd), series)
    z = np.abs(deviations(values, center, scale, absent))
    return np.minimum(z, CLIP)


@baseline(
    "max-z-detector",
    title="Max-z",
    task="detection",
    paper=_PAPER,
    kind="control",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T)",
)
class MaxZDetector(Untrained):
    """Control: detect when some series stays further from normal than any did within the reference.

    A deviation counts when it lasts for three samples. The limit is the largest that a quarter of the
    reference shows against the rest of it, and at least `least`.

    References
    ----------
    Fang et al., arXiv 2510.04711, 2025, for how far such rules go.
    """

    def __init__(self, *, least: float = 3.0) -> None:
        self.least = least

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its largest sustained |z|."""
        windows = detection_windows(episode)
        if windows.empty:
            return Detection.silent(self.least)
        within = np.zeros(len(windows.series))
        pieces = np.array_split(np.arange(len(windows.reference)), 4)
        for piece in pieces if min(map(len, pieces)) >= SUSTAINED else []:
            rest = np.setdiff1d(np.arange(len(windows.reference)), piece)
            there = np.zeros((len(piece), len(windows.series)), dtype=bool)
            z = robust_deviations(windows.reference[rest], windows.reference[piece], there, windows.series)
            within = np.maximum(within, sustained(z, SUSTAINED).max(axis=0))
        # What is idle for a part of the reference only would set a limit that nothing can pass.
        steady = within < CLIP
        limit = max(self.least, float(within[steady].max(initial=0.0)))
        z = (
            sustained(robust_deviations(windows.reference, windows.values, windows.absent, windows.series), SUSTAINED)
            * steady
        )
        scores = z.max(axis=1)
        alarm = first_alarm(windows.times_ns, scores > limit)
        evidence: tuple[Evidence, ...] = ()
        if alarm is not None:
            row = int(np.searchsorted(windows.times_ns, alarm))
            evidence = largest_deviations(z, windows, row, "robust sigmas for three samples")
        return Detection.from_scores(windows.times_ns, scores, limit, evidence=evidence)


@baseline(
    "max-z",
    title="Max-z",
    task="localization",
    paper=_PAPER,
    kind="control",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    trigger="max-z-detector",
    complexity="O(S·T)",
    departures=(
        "Two-sided, on metrics only, and a deviation must last for three samples.",
        "A spread is at least a quarter of what the metric has over all services.",
    ),
)
class MaxZ(Untrained):
    """Control: blame the service with the series that stayed furthest from normal.

    Deviations are capped at 100 sigma, beyond which units decide; among services at the cap the one with more
    series moving comes first.

    References
    ----------
    Fang et al., arXiv 2510.04711, 2025; Li et al., arXiv 2406.05014, 2024, for why the rule is principled.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their most deviating series since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        z = robust_deviations(windows.reference, windows.values, windows.absent, windows.series)
        return rank_by_series(
            sustained(z, SUSTAINED).max(axis=0),
            windows.series,
            episode.services,
            breadth=1 / CLIP,
            detail="robust sigmas for three samples",
        )
