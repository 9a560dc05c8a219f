"""Tails of distributions: a generalised Pareto law fitted to excesses, and the quantile that follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from faultset.baselines.stats.scaling import Matrix

LEAST_EXCESSES = 10
_GRID = 33
_ZOOMS = 4
_LEAST_GAMMA = 1e-8


def fit_pareto(excesses: Matrix) -> tuple[float, float]:
    """Shape gamma and scale sigma of positive excesses by maximum likelihood.

    Grimshaw's reduction leaves one unknown, theta = gamma / sigma; the likelihood along it is searched on a grid
    that zooms in, which also finds a maximum at the border. The exponential law, gamma = 0, is always a candidate.
    """
    count = len(excesses)
    mean = float(excesses.mean()) if count else 0.0
    if count < 2 or mean <= 0:
        return 0.0, max(mean, 1e-12)
    unit = excesses / mean
    top = float(unit.max())
    # gamma below -1/2 has no regular likelihood; beyond 1 the law has no mean.
    candidates = np.concatenate([-np.geomspace(1e-4, 0.98, _GRID)[::-1] / top, np.geomspace(1e-4, 50.0, _GRID)])
    found = (-np.inf, 0.0, 1.0)
    for _ in range(_ZOOMS):
        gammas = np.log1p(np.multiply.outer(candidates, unit)).mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            likelihood = -np.log(gammas / candidates) - gammas - 1
        likelihood[(gammas < -0.5) | ~np.isfinite(likelihood)] = -np.inf
        best = int(likelihood.argmax())
        found = (float(likelihood[best]), float(gammas[best]), float(gammas[best] / candidates[best]))
        left, right = candidates[max(best - 1, 0)], candidates[min(best + 1, len(candidates) - 1)]
        candidates = np.linspace(left, right, 9)
        candidates = candidates[np.abs(candidates) > 1e-12]
    if found[0] <= -1.0 or abs(found[1]) < _LEAST_GAMMA:
        return 0.0, mean
    return found[1], found[2] * mean


def tail_quantile(level: float, threshold: float, gamma: float, sigma: float, samples: int, excesses: int) -> float:
    """Value that one of `samples` exceeds with probability `level`, from a Pareto tail above `threshold`.

    >>> round(tail_quantile(1e-3, 10, 0.1, 2, 1000, 20), 4), round(tail_quantile(1e-3, 10, 0.0, 2, 1000, 20), 4)
    (16.9857, 15.9915)
    """
    rarity = level * samples / max(excesses, 1)
    if abs(gamma) < _LEAST_GAMMA:
        return threshold - sigma * float(np.log(rarity))
    return threshold + sigma / gamma * (rarity**-gamma - 1)


@dataclass
class Spot:
    """A limit on a stream of magnitudes that learns from what stays below it.

    Parameters
    ----------
    level
        Probability that a healthy value passes the limit.
    otherwise
        Limit as long as there are too few excesses to fit anything to.
    initial
        Quantile of the first values above which the tail begins.
    growth
        Share by which the number of excesses must grow before the tail is fitted anew.
    """

    level: float
    otherwise: float
    initial: float = 0.98
    growth: float = 0.05

    def start(self, values: Matrix) -> Spot:
        """Fit to values that are known to be healthy."""
        self.samples = len(values)
        self.tail_begins = float(np.quantile(values, self.initial)) if len(values) else 0.0
        self._excesses = values[values > self.tail_begins] - self.tail_begins
        self._refit()
        return self

    @property
    def limit(self) -> float:
        """Value beyond which an observation is extreme."""
        count = len(self._excesses)
        if count < LEAST_EXCESSES:
            return self.otherwise
        found = tail_quantile(self.level, self.tail_begins, self.gamma, self.sigma, self.samples, count)
        return max(self.tail_begins, found)

    def learn(self, values: Matrix) -> None:
        """Take in values; those beyond the limit are anomalies and teach nothing."""
        ordinary = values[values <= self.limit]
        self.samples += len(ordinary)
        excesses = ordinary[ordinary > self.tail_begins] - self.tail_begins
        self._excesses = np.concatenate([self._excesses, excesses])
        if len(self._excesses) > (1 + self.growth) * self._fitted:
            self._refit()

    def _refit(self) -> None:
        self.gamma, self.sigma = fit_pareto(self._excesses)
        self._fitted = len(self._excesses)
