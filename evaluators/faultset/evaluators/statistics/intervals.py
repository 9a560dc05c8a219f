"""95 % intervals from an estimate and its spread over clusters. No resampling: the same data give the same interval.

`benchmarks/interval_coverage.py` simulates how often they contain the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
Z95 = 1.959963984540054
_NEGLIGIBLE = 1e-12
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How uncertain an estimate is; numbers, or arrays for many estimates at once."""

    variance: Any
    """Of the estimate, between clusters."""
    clusters: Any
    """Effective number: Kish's, which is smaller where a few clusters hold most of the weight."""
    df: Any
    """Degrees of freedom of the variance: one less than the mean of the number of clusters and of Kish's."""


def spread_over_clusters(contributions: Numbers, weights: Numbers) -> Spread:
    """Return the spread of an estimate that is a sum over clusters.

    Parameters
    ----------
    contributions
        [..., clusters] what each cluster adds to the error of the estimate: its linearised influence.
    weights
        [..., clusters] how much data each cluster has.

    References
    ----------
    Cameron and Miller, A practitioner's guide to cluster-robust inference, 2015; Kish, Survey sampling, 1965.
    """
    count = contributions.shape[-1]
    centred = contributions - contributions.mean(axis=-1, keepdims=True)
    effective = weights.sum(axis=-1) ** 2 / np.maximum((weights**2).sum(axis=-1), _NEGLIGIBLE)
    return Spread(
        variance=count / max(count - 1, 1) * (centred**2).sum(axis=-1),
        clusters=effective,
        df=np.maximum((effective + count) / 2 - 1, 1.0),
    )


def pooled(first: Spread, second: Spread) -> Spread:
    """Add the spreads of two independent halves; degrees of freedom after Welch and Satterthwaite."""
    variance = first.variance + second.variance
    parts = first.variance**2 / first.df + second.variance**2 / second.df
    known = parts > 0
    return Spread(
        variance=variance,
        clusters=first.clusters + second.clusters,
        df=np.maximum(np.where(known, variance**2 / np.where(known, parts, 1.0), first.df + second.df), 1.0),
    )


def wilson(share: Any, trials: Any, z: Any = Z95) -> tuple[Any, Any]:
    """Wilson score interval of a share of independent trials; still sensible at 0 and 1, where p ± 2 SE is not."""
    centre = share + z * z / (2 * trials)
    half = z * np.sqrt(np.maximum(share * (1 - share), 0) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return np.maximum(0.0, (centre - half) / scale), np.minimum(1.0, (centre + half) / scale)


def share_interval(share: Any, spread: Spread) -> tuple[Any, Any]:
    """Wilson's interval with as many trials as the variance between clusters is worth.

    The quantile is Student's, because the variance is estimated. Where clusters are all or nothing the share itself
    says what the variance is, and the quantile goes to the normal one. Where clusters do not differ at all, each is
    one trial.
    """
    from scipy.special import stdtrit

    bernoulli = np.asarray(share * (1 - share), dtype=float)
    variance = np.asarray(spread.variance, dtype=float)
    seen = variance > _NEGLIGIBLE
    trials = np.where(seen, bernoulli / np.where(seen, variance, 1.0), spread.clusters)
    trials = np.maximum(trials, _NEGLIGIBLE)
    largest = bernoulli / spread.clusters
    known = np.clip(np.where(largest > 0, variance / np.where(largest > 0, largest, 1.0), 1.0), 0.0, 1.0)
    student = stdtrit(spread.df, (1 + LEVEL) / 2)
    quantile = np.where(seen, student + (Z95 - student) * known**2, Z95)
    return wilson(share, trials, quantile)


def mean_interval(mean: Any, spread: Spread) -> tuple[Any, Any]:
    """Student's interval, for what has no bounds."""
    from scipy.special import stdtrit

    half = stdtrit(spread.df, (1 + LEVEL) / 2) * np.sqrt(spread.variance)
    return mean - half, mean + half
