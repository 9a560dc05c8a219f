"""Matrix profile: the distance of each subsequence to the nearest healthy subsequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.baselines.api.contract import Detection, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import HeldOut, divide_by_limits, read_held_out, remove_spikes
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

LENGTH = 8
CLIP = 20.0
Pieces = npt.NDArray[np.floating]
"""[S, count, m] subsequences of each series."""


def subsequences(series: npt.NDArray[np.floating], length: int) -> Pieces:
    """Return all subsequences of each column of [T, S], as [S, T - length + 1, length]."""
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(series, length, axis=0).swapaxes(0, 1))


def compute_nearest_distances(tested: Pieces, healthy: Pieces, *, min_distance: int = 0) -> Matrix:
    """Return the Euclidean distance of each subsequence to the nearest healthy subsequence of the same series.

    Values are not normalised, because that would hide a shift of the level.

    Parameters
    ----------
    min_distance
        Subsequences whose starts are closer than this do not match. If positive, `tested` and `healthy` must be equal.

    Returns
    -------
    ndarray
        [S, number of tested subsequences]
    """
    squared = (
        (tested**2).sum(axis=-1)[:, :, None]
        + (healthy**2).sum(axis=-1)[:, None, :]
        - 2 * (tested @ healthy.swapaxes(1, 2))
    )
    if min_distance:
        position = np.arange(tested.shape[1])
        squared[:, np.abs(position[:, None] - position) < min_distance] = np.inf
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
        "Subsequences are compared with the reference only, so that nothing looks ahead and a lasting fault does not "
        "match itself.",
        "Distances are not normalised, and are divided by the largest distance of the series in the reference.",
        "A sample has the score of its most discordant series; deviations of single samples are removed first.",
    ),
)
class MatrixProfileDetector(TrainingFreeBaseline):
    """Detect subsequences that are unlike all of the reference.

    Parameters
    ----------
    length
        Number of samples in a subsequence; at most a quarter of the reference.

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
        within = compute_nearest_distances(pieces[:, :first], pieces[:, :first], min_distance=max(1, length // 2))
        across = compute_nearest_distances(pieces[:, first:], pieces[:, :first])
        # Ignore distances below half a sigma over the whole length.
        ratios, limit = divide_by_limits(within.T, across.T, 0.5 * np.sqrt(length))
        shares = np.zeros(values.shape)
        shares[:, alive] = ratios * np.sign(values[:, alive])
        return held_out.detection(
            ratios.max(axis=1), limit, by_series=shares, detail="times the largest distance of a healthy subsequence"
        )


def _lasting(held_out: HeldOut) -> tuple[Matrix, Matrix]:
    """Return lasting deviations of the reference and the test window on the same scale."""
    reference = held_out.windows.reference
    mean, sd = mean_and_sd(reference)
    never_absent = np.zeros(reference.shape, dtype=bool)
    normal = deviations(reference, mean, with_metric_floor(sd, held_out.windows.series), never_absent)
    z = remove_spikes(np.vstack([normal, held_out.z])).clip(-CLIP, CLIP)
    return z[: len(normal)], z[len(normal) :]
