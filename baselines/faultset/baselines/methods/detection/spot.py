"""SPOT: limits from the tail of the healthy values, without the assumption of a normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import CONSECUTIVE, Detection, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import HeldOut, read_held_out
from faultset.baselines.stats.extreme_values import Spot
from faultset.baselines.stats.limits import LEVEL, bonferroni_sigmas
from faultset.baselines.stats.scaling import sustained

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

_PAPER = "Siffer, Fouque, Termier, Largouet, KDD 2017"
_DEPARTURES = (
    "A series has too few samples for a tail of its own: deviations of all series that move are pooled after "
    "standardisation, each block of the reference by the others.",
    "The level is that of one sample of all series together, divided by their number.",
    "What has a tail is the smaller of two neighbouring deviations of a series, which a single spike does not raise.",
    "The tail is fitted anew when it has a twentieth more excesses; with fewer than ten, K-sigma's limit holds.",
)
_DETAIL = "sigmas for two samples"


def detect_extremes(found: HeldOut, level: float) -> Detection:
    """Score each sample by its largest sustained deviation, in units of the limit that holds at that time.

    What is streamed is the smaller of two neighbouring deviations of a series, in the reference too.
    """
    # Series that stood still would fill the pool with zeros.
    moving = np.abs(found.normal).max(axis=0) > 1e-6
    count = max(1, int(moving.sum()))
    otherwise = bonferroni_sigmas(count, level=level, samples=len(found.normal))
    healthy = sustained(found.normal[:, moving], CONSECUTIVE)[CONSECUTIVE - 1 :]
    spot = Spot(level / count, otherwise).start(healthy.ravel())
    lasting = sustained(found.z, CONSECUTIVE)
    limits = np.empty(len(lasting))
    for row, values in enumerate(lasting):
        limits[row] = spot.limit
        spot.learn(values[moving])
    scores = lasting.max(axis=1) / np.maximum(limits, 1e-9)
    return found.detection(scores, 1.0, by_series=np.sign(found.z) * lasting, detail=_DETAIL, consecutive=1)


@baseline(
    "spot",
    title="SPOT",
    task="detection",
    paper=_PAPER,
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + fits·excesses)",
    departures=_DEPARTURES,
)
class SPOTDetector(Untrained):
    """Detect deviations that a Pareto tail, fitted to the largest healthy ones, finds too rare.

    Parameters
    ----------
    level
        Probability that a healthy sample is flagged.

    References
    ----------
    Siffer, Fouque, Termier, Largouet, Anomaly Detection in Streams with Extreme Value Theory, KDD 2017.
    """

    def __init__(self, *, level: float = LEVEL) -> None:
        self.level = level

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference; 1 is the limit of its time."""
        found = read_held_out(episode)
        if found is None:
            return Detection.silent(1.0)
        return detect_extremes(found, self.level)
