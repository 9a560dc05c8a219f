"""SPOT and DSPOT: limits from the tail of the healthy values, without the assumption of a normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import CONSECUTIVE, Detection, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import HeldOut, folds, read_held_out
from faultset.baselines.stats.extreme_values import Spot
from faultset.baselines.stats.limits import LEVEL, bonferroni_sigmas
from faultset.baselines.stats.scaling import Matrix, sustained

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
LEAST_SPREAD = 0.25


def detect_extremes(found: HeldOut, level: float, depth: int = 0) -> Detection:
    """Score each sample by its largest sustained deviation, in units of the limit that holds at that time.

    What is streamed is the smaller of two neighbouring deviations of a series, in the reference too.

    Parameters
    ----------
    depth
        Ordinary samples whose mean is subtracted first; 0 for none.
    """
    healthy = drift_free(found.normal, depth) if depth else found.normal
    # Series that stood still would fill the pool with zeros.
    moving = np.abs(found.normal).max(axis=0) > 1e-6
    scale = _spread(healthy) if depth else np.ones(healthy.shape[1])
    pool = np.vstack(
        [healthy[block] / (_spread(healthy[rest]) if depth else 1.0) for rest, block in folds(len(healthy))]
    )
    otherwise = bonferroni_sigmas(len(scale), level=level, samples=len(healthy))
    spot = Spot(level / len(scale), otherwise).start(sustained(pool[:, moving], CONSECUTIVE)[CONSECUTIVE - 1 :].ravel())
    window = found.normal[len(found.normal) - depth :].copy()
    oldest = np.zeros(len(scale), dtype=int)
    residuals = np.zeros((len(found.z) + CONSECUTIVE - 1, len(scale)))
    lasting = np.empty(found.z.shape)
    limits = np.empty(len(found.z))
    for row, values in enumerate(found.z):
        recent = residuals[row : row + CONSECUTIVE]
        recent[-1] = (values - window.mean(axis=0) if depth else values) / scale
        limits[row] = spot.limit
        lasting[row] = np.abs(recent).min(axis=0)
        spot.learn(lasting[row, moving])
        if depth:
            ordinary = (np.abs(recent[-1]) <= limits[row]) & ~found.windows.absent[row]
            kept = np.flatnonzero(ordinary)
            window[oldest[kept], kept] = values[kept]
            oldest[kept] = (oldest[kept] + 1) % depth
    scores = lasting.max(axis=1) / np.maximum(limits, 1e-9)
    signed = np.sign(residuals[CONSECUTIVE - 1 :]) * lasting
    return found.detection(scores, 1.0, by_series=signed, detail=_DETAIL, consecutive=1)


def drift_free(values: Matrix, depth: int) -> Matrix:
    """Distance of each row from the mean of the `depth` rows before it; the first `depth` rows have none.

    >>> drift_free(np.array([[1.0], [3.0], [5.0], [7.0]]), 2).tolist()
    [[3.0], [3.0]]
    """
    before = np.lib.stride_tricks.sliding_window_view(values[:-1], depth, axis=0).mean(axis=-1)
    return values[depth:] - before


def _spread(residuals: Matrix) -> Matrix:
    return np.maximum(np.sqrt((residuals**2).mean(axis=0)), LEAST_SPREAD)


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


@baseline(
    "dspot",
    title="DSPOT",
    task="detection",
    paper=_PAPER,
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + fits·excesses)",
    departures=(*_DEPARTURES, "The spread of a series around its moving mean is at least a quarter of its own."),
)
class DSPOTDetector(Untrained):
    """Detect what SPOT does, after subtracting from each series the mean of its last samples.

    Slow drift is followed and not reported; so is, after a while, a slow fault.

    Parameters
    ----------
    depth
        Samples of the moving mean.
    level
        Probability that a healthy sample is flagged.

    References
    ----------
    Siffer, Fouque, Termier, Largouet, Anomaly Detection in Streams with Extreme Value Theory, KDD 2017.
    """

    def __init__(self, *, depth: int = 10, level: float = LEVEL) -> None:
        self.depth = depth
        self.level = level

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference; 1 is the limit of its time."""
        found = read_held_out(episode)
        if found is None:
            return Detection.silent(1.0)
        return detect_extremes(found, self.level, min(self.depth, len(found.normal) // 2))
