"""Change points of a series, and limits from the tail of a distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from faultset.baselines.stats.scaling import Matrix

HAZARD = 1 / 50
NEGLIGIBLE = 1e-12


@dataclass(frozen=True, kw_only=True)
class RunLengths:
    """Distribution of the length of the current run after each sample."""

    probability: Matrix
    """[T, T + 1] row t, column r: probability that the run has r samples after t + 1 samples."""

    def compute_start_probability(self, first: int) -> Matrix:
        """Return the probability [T] that the current run began at sample `first` or later and is not empty."""
        cumulative = np.cumsum(self.probability[:, 1:], axis=1)
        longest = np.arange(len(cumulative)) - first
        selected = cumulative[np.arange(len(cumulative)), np.maximum(longest, 0)]
        return np.where(longest >= 0, selected, 0.0)


def run_lengths(samples: Matrix, *, hazard: float = HAZARD) -> RunLengths:
    """Return the distribution of the run length after each sample, without looking ahead.

    Parameters
    ----------
    samples
        [T, d] finite values.
    hazard
        Probability that a regime ends after any one sample.

    Notes
    -----
    Runs with a probability below 1e-12 are dropped. The cost is O(T·R·d²) for R ≤ T remaining runs. Inverse scatter
    matrices get rank-one updates.

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
        joint = weight * np.exp(density - density.max())
        total = joint.sum()
        weight = np.concatenate([[hazard], (1 - hazard) * joint / total])
        length = np.concatenate([[0], length + 1])
        widened = 1 + gain * distance
        inverse = inverse - (gain / widened)[:, None, None] * pulled[:, :, None] * pulled[:, None, :]
        mean = mean + centered / (kappa + 1)[:, None]
        keep = weight > NEGLIGIBLE
        probability[row, length[keep]] = weight[keep] / weight[keep].sum()
        weight = weight[keep] / weight[keep].sum()
        length = length[keep]
        # The new run starts from the prior.
        survivors = keep[1:]
        mean = np.concatenate([np.zeros((1, dims)), mean[survivors]])
        inverse = np.concatenate([np.eye(dims)[None], inverse[survivors]])
        log_det = np.concatenate([[0.0], (log_det + np.log(widened))[survivors]])
    return RunLengths(probability=probability)


MIN_EXCESSES = 10
_GRID = 33
_ZOOMS = 4
_MIN_GAMMA = 1e-8


def fit_pareto(excesses: Matrix) -> tuple[float, float]:
    """Return the maximum-likelihood shape gamma and scale sigma of positive excesses.

    Grimshaw's reduction leaves one unknown, theta = gamma / sigma. A grid search that is refined around its best point
    maximises the likelihood and also handles a maximum at the border. The exponential law (gamma = 0) is always a
    candidate.
    """
    count = len(excesses)
    mean = float(excesses.mean()) if count else 0.0
    if count < 2 or mean <= 0:
        return 0.0, max(mean, 1e-12)
    unit = excesses / mean
    top = float(unit.max())
    # Below gamma = -1/2 the likelihood is not regular; above 1 the mean does not exist.
    candidates = np.concatenate([-np.geomspace(1e-4, 0.98, _GRID)[::-1] / top, np.geomspace(1e-4, 50.0, _GRID)])
    fit = (-np.inf, 0.0, 1.0)
    for _ in range(_ZOOMS):
        gammas = np.log1p(np.multiply.outer(candidates, unit)).mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            likelihood = -np.log(gammas / candidates) - gammas - 1
        likelihood[(gammas < -0.5) | ~np.isfinite(likelihood)] = -np.inf
        best = int(likelihood.argmax())
        fit = (float(likelihood[best]), float(gammas[best]), float(gammas[best] / candidates[best]))
        lower, upper = candidates[max(best - 1, 0)], candidates[min(best + 1, len(candidates) - 1)]
        candidates = np.linspace(lower, upper, 9)
        candidates = candidates[np.abs(candidates) > 1e-12]
    if fit[0] <= -1.0 or abs(fit[1]) < _MIN_GAMMA:
        return 0.0, mean
    return fit[1], fit[2] * mean


def tail_quantile(level: float, threshold: float, gamma: float, sigma: float, samples: int, excesses: int) -> float:
    """Return the value that a sample exceeds with probability `level`, from a Pareto tail above `threshold`.

    >>> round(tail_quantile(1e-3, 10, 0.1, 2, 1000, 20), 4), round(tail_quantile(1e-3, 10, 0.0, 2, 1000, 20), 4)
    (16.9857, 15.9915)
    """
    rarity = level * samples / max(excesses, 1)
    if abs(gamma) < _MIN_GAMMA:
        return threshold - sigma * float(np.log(rarity))
    return threshold + sigma / gamma * (rarity**-gamma - 1)


@dataclass
class Spot:
    """Limit for a stream of magnitudes; it is updated with the values below it.

    Parameters
    ----------
    level
        Probability that a healthy value exceeds the limit.
    fallback
        Limit while there are too few excesses to fit a tail.
    initial
        Quantile of the values passed to `start` at which the tail begins.
    growth
        Relative growth in the number of excesses that starts a new fit.
    """

    level: float
    fallback: float
    initial: float = 0.98
    growth: float = 0.05

    def start(self, values: Matrix) -> Spot:
        """Fit the tail to healthy values."""
        self.samples = len(values)
        self.tail_begins = float(np.quantile(values, self.initial)) if len(values) else 0.0
        self._excesses = values[values > self.tail_begins] - self.tail_begins
        self._refit()
        return self

    @property
    def limit(self) -> float:
        """Return the value above which an observation is extreme."""
        count = len(self._excesses)
        if count < MIN_EXCESSES:
            return self.fallback
        quantile = tail_quantile(self.level, self.tail_begins, self.gamma, self.sigma, self.samples, count)
        return max(self.tail_begins, quantile)

    def learn(self, values: Matrix) -> None:
        """Learn from the values that do not exceed the limit."""
        ordinary = values[values <= self.limit]
        self.samples += len(ordinary)
        excesses = ordinary[ordinary > self.tail_begins] - self.tail_begins
        self._excesses = np.concatenate([self._excesses, excesses])
        if len(self._excesses) > (1 + self.growth) * self._fitted_count:
            self._refit()

    def _refit(self) -> None:
        self.gamma, self.sigma = fit_pareto(self._excesses)
        self._fitted_count = len(self._excesses)
