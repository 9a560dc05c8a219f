"""Multivariate Bayesian online change point detection: the distribution of the time since the last change.

Samples of one regime are normal with unknown mean and covariance; the prior is the conjugate one with mean 0,
scatter I, one pseudo-sample and as few degrees of freedom as there can be. Columns must come on a scale on
which the usual spread is about one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from faultset.baselines.stats.scaling import Matrix

HAZARD = 1 / 50
NEGLIGIBLE = 1e-12


@dataclass(frozen=True, kw_only=True)
class RunLengths:
    """What is known after each sample about how many samples the present run has."""

    probability: Matrix
    """[T, T + 1] row t, column r: probability that the run has r samples once t + 1 samples were seen."""

    @property
    def most_likely(self) -> npt.NDArray[np.int64]:
        """[T] length of the most probable run."""
        return np.asarray(self.probability.argmax(axis=1), dtype=np.int64)

    def begun_since(self, first: int) -> Matrix:
        """[T] probability that the run holds a sample and began at sample `first` or later."""
        cumulated = np.cumsum(self.probability[:, 1:], axis=1)
        longest = np.arange(len(cumulated)) - first
        taken = cumulated[np.arange(len(cumulated)), np.maximum(longest, 0)]
        return np.where(longest >= 0, taken, 0.0)


def run_lengths(samples: Matrix, *, hazard: float = HAZARD) -> RunLengths:
    """Follow the run length through the samples; each row of the answer depends on samples up to it only.

    Parameters
    ----------
    samples
        [T, d] finite values.
    hazard
        Probability that a regime ends after any one sample.

    Notes
    -----
    Runs with a probability below 1e-12 are dropped, so that time is O(T·R·d²) for R runs that are still possible,
    at most T of them. Inverse scatter matrices are updated by rank one.

    References
    ----------
    Adams, MacKay, Bayesian online changepoint detection, arXiv 0710.3742, 2007.
    """
    count, dims = samples.shape
    probability = np.zeros((count, count + 1))
    length = np.zeros(1, dtype=np.int64)
    weight = np.ones(1)
    mean = np.zeros((1, dims))
    inverse = np.eye(dims)[None]
    log_det = np.zeros(1)
    for row, sample in enumerate(samples):
        kappa = 1.0 + length
        freedom = 2.0 + length
        centered = sample - mean
        pulled = np.einsum("rij,rj->ri", inverse, centered)
        distance = np.einsum("ri,ri->r", centered, pulled)
        gain = kappa / (kappa + 1)
        density = (
            gammaln((freedom + dims) / 2)
            - gammaln(freedom / 2)
            - dims / 2 * np.log(np.pi * (kappa + 1) / kappa)
            - log_det / 2
            - (freedom + dims) / 2 * np.log1p(gain * distance)
        )
        grown = weight * np.exp(density - density.max())
        total = grown.sum()
        weight = np.concatenate([[hazard], (1 - hazard) * grown / total])
        length = np.concatenate([[0], length + 1])
        widened = 1 + gain * distance
        inverse = inverse - (gain / widened)[:, None, None] * pulled[:, :, None] * pulled[:, None, :]
        mean = mean + centered / (kappa + 1)[:, None]
        keep = weight > NEGLIGIBLE
        probability[row, length[keep]] = weight[keep] / weight[keep].sum()
        weight = weight[keep] / weight[keep].sum()
        length = length[keep]
        # The new run has the prior; the others carry on.
        survivors = keep[1:]
        mean = np.concatenate([np.zeros((1, dims)), mean[survivors]])
        inverse = np.concatenate([np.eye(dims)[None], inverse[survivors]])
        log_det = np.concatenate([[0.0], (log_det + np.log(widened))[survivors]])
    return RunLengths(probability=probability)


def change_points(most_likely: npt.NDArray[np.int64]) -> list[int]:
    """Samples after which the most likely run length moved by anything but one step, as BARO reads it.

    >>> change_points(np.array([1, 2, 3, 1, 2]))
    [3]
    """
    return [int(row) + 1 for row in np.flatnonzero(np.abs(np.diff(most_likely)) > 1)]
