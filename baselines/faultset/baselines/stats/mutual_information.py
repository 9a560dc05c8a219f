"""Mutual information between one series and many, in nats.

The k-nearest-neighbour estimate is Kraskov's first one with the conventions of scikit-learn's
`mutual_info_regression` (its results agree to rounding), but for all series at once: scikit-learn builds
four search trees per pair, while for the tens of samples of a diagnosis window all distances fit in a small
array.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma

from faultset.baselines.stats.scaling import Matrix

_BLOCK_FLOATS = 2_000_000


def knn_information(series: Matrix, target: Matrix, *, neighbours: int = 3) -> Matrix:
    """Estimate the information that each series shares with its target.

    Parameters
    ----------
    series
        [d, n] values; one row per series.
    target
        [n] one target for all, or [d, n] one for each.
    neighbours
        Size of the neighbourhood; below 1 or not below n there is no estimate and the result is 0.

    References
    ----------
    Kraskov, Stoegbauer, Grassberger, Estimating mutual information, Phys. Rev. E 69, 2004.
    """
    count, samples = series.shape
    if not 1 <= neighbours < samples:
        return np.zeros(count)
    x = _unit_spread(series)
    y = _unit_spread(np.atleast_2d(target))
    result = np.empty(count)
    rows = max(1, _BLOCK_FLOATS // samples**2)
    shared = len(y) == 1
    near_y = _distances(y) if shared else None
    for start in range(0, count, rows):
        piece = slice(start, start + rows)
        dx = _distances(x[piece])
        dy = _distances(y[piece]) if near_y is None else near_y
        joint = np.maximum(dx, dy)
        # Index 0 of the sorted distances is the sample itself; the radius lies just inside the last neighbour.
        radius = np.partition(joint, neighbours, axis=2)[:, :, neighbours, None]
        radius = np.nextafter(radius, 0)
        within_x = (dx <= radius).sum(axis=2)
        within_y = (dy <= radius).sum(axis=2)
        result[piece] = -(digamma(within_x) + digamma(within_y)).mean(axis=1)
    return np.maximum(result + digamma(samples) + digamma(neighbours), 0.0)


def binned_information(series: Matrix, target: Matrix) -> Matrix:
    """Plug-in information after cutting every series in two at the middle of its range.

    Coarse, but exact to compute by hand; a constant series shares nothing.
    """
    a = series > (series.min(axis=1, keepdims=True) + series.max(axis=1, keepdims=True)) / 2
    b = np.asarray(target > (target.min() + target.max()) / 2)
    result = np.zeros(len(series))
    for in_a in (False, True):
        for in_b in (False, True):
            both = ((a == in_a) & (b == in_b)).mean(axis=1)
            apart = (a == in_a).mean(axis=1) * (b == in_b).mean()
            some = both > 0
            result[some] += both[some] * np.log(both[some] / apart[some])
    return np.maximum(result, 0.0)


def _unit_spread(series: Matrix) -> Matrix:
    spread = series.std(axis=1, keepdims=True)
    return series / np.where(spread > 0, spread, 1.0)


def _distances(series: Matrix) -> Matrix:
    return np.abs(series[:, :, None] - series[:, None, :])
