"""Matrix profile: the distance of each subsequence to the healthy one that is most like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.baselines.api.contract import Detection, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import HeldOut, own_limits, read_held_out, without_spikes
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

LENGTH = 8
CLIP = 20.0
Pieces = npt.NDArray[np.floating]
"""[S, count, m] subsequences of each series."""


def subsequences(series: npt.NDArray[np.floating], length: int) -> Pieces:
    """All subsequences of each column of [T, S], as [S, T - length + 1, length]."""
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(series, length, axis=0).swapaxes(0, 1))


def nearest_distances(in_test_window: Pieces, healthy: Pieces, *, apart: int = 0) -> Matrix:
    """Euclidean distance of each questioned subsequence to the nearest healthy one of its series.

    Values are not normalised, since that would hide a shift of level.

    Parameters
    ----------
    apart
        Both are the same subsequences, and those fewer than so many samples apart are no match of each other.

    Returns
    -------
    ndarray
        [S, count of the questioned]
    """
    squared = (
        (in_test_window**2).sum(axis=-1)[:, :, None]
        + (healthy**2).sum(axis=-1)[:, None, :]
        - 2 * (in_test_window @ healthy.swapaxes(1, 2))
    )
    if apart:
        position = np.arange(in_test_window.shape[1])
        squared[:, np.abs(position[:, None] - position) < apart] = np.inf
    return np.sqrt(np.maximum(squared.min(axis=-1), 0.0)).astype(float)


@baseline(
    "matrix-profile",
    title="Matrix profile",
    task="detection",
    paper="Yeh et al., ICDM 2016; Linardi et al., AAMP without normalisation",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T·n·m)",
    departures=(
        "Subsequences are compared with those of the reference alone, so that nothing looks ahead and a fault that "
        "lasts does not match itself.",
        "Distances are not normalised, and are divided by the largest that the series has within the reference.",
        "An instant has the score of its most discordant series; what one sample alone shows is left out first.",
    ),
)
class MatrixProfileDetector(Untrained):
    """Detect a subsequence of some series that nothing in the reference resembles.

    Parameters
    ----------
    length
        Samples in a subsequence; at most a quarter of the reference.

    References
    ----------
    Yeh et al., Matrix Profile I: All Pairs Similarity Joins for Time Series, ICDM 2016.
    """

    def __init__(self, *, length: int = LENGTH) -> None:
        self.length = length

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the subsequence that ends with it."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent(1.0)
        normal, values = _lasting(held_out)
        healthy = len(normal)
        length = max(2, min(self.length, healthy // 4))
        alive = np.abs(np.vstack([normal, values])).max(axis=0) > 1e-6
        if not alive.any():
            return held_out.detection(np.zeros(len(values)), 1.0)
        pieces = subsequences(np.vstack([normal, values])[:, alive].astype(np.float32), length)
        first = healthy - length + 1
        within = nearest_distances(pieces[:, :first], pieces[:, :first], apart=max(1, length // 2))
        across = nearest_distances(pieces[:, first:], pieces[:, :first])
        # Half a sigma over the whole length is nothing, however still the series was before.
        ratios, limit = own_limits(within.T, across.T, 0.5 * np.sqrt(length))
        shares = np.zeros(values.shape)
        shares[:, alive] = ratios * np.sign(values[:, alive])
        return held_out.detection(
            ratios.max(axis=1), limit, by_series=shares, detail="times as far as any healthy subsequence"
        )


def _lasting(held_out: HeldOut) -> tuple[Matrix, Matrix]:
    """Deviations that last, of both on one scale: blocks that are held out have scales of their own."""
    reference = held_out.windows.reference
    mean, sd = mean_and_sd(reference)
    present = np.zeros(reference.shape, dtype=bool)
    normal = deviations(reference, mean, with_metric_floor(sd, held_out.windows.series), present)
    z = without_spikes(np.vstack([normal, held_out.z])).clip(-CLIP, CLIP)
    return z[: len(normal)], z[len(normal) :]
