"""Measures of dependence: energy distances, independence tests, mutual information and lagged links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, digamma, ndtr

from faultset.baselines.stats.scaling import Matrix


@dataclass(frozen=True, kw_only=True)
class RankedSamples:
    """Two samples of many series, sorted together."""

    first: int
    second: int
    """Number of values in each sample."""
    gaps: Matrix
    """[first + second - 1, d] from each value to the next."""
    distances: Matrix
    """[d] energy distance of each series."""


def ranked_samples(first: Matrix, second: Matrix) -> RankedSamples:
    """Sort two samples together, and compute the energy distance of each series.

    The squared distance 2 E|X-Y| - E|X-X'| - E|Y-Y'| is twice the integral of the squared difference of the
    distribution functions, which a sort computes without visiting all pairs.

    Examples
    --------
    >>> ranked_samples(np.zeros((3, 1)), np.ones((2, 1))).distances
    array([2.])
    """
    pooled = np.vstack([first, second])
    order = np.argsort(pooled, axis=0, kind="stable")
    gaps = np.diff(np.take_along_axis(pooled, order, axis=0), axis=0)
    n, m = len(first), len(second)
    distances = 2 * (_compute_cdf_difference(order < n, n, m)[:-1] ** 2 * gaps).sum(axis=0)
    return RankedSamples(first=n, second=m, gaps=gaps, distances=distances)


def permutation_p_values(samples: RankedSamples, *, draws: int = 499, rng: np.random.Generator) -> Matrix:
    """Return the share of random labellings that reach the energy distance of each column.

    Notes
    -----
    The smallest p-value is 1 / (draws + 1). Labels are drawn for ranks, once for all series, so that the permuted
    distances are one matrix product.
    """
    n, m = samples.first, samples.second
    labels = rng.permuted(np.tile(np.arange(n + m) < n, (draws, 1)), axis=1)
    permuted = 2 * (_compute_cdf_difference(labels.T, n, m)[:-1].T ** 2 @ samples.gaps)
    reached = (permuted >= samples.distances * (1 - 1e-12)).sum(axis=0)
    return (1 + reached) / (draws + 1)


def _compute_cdf_difference(labels: np.ndarray, n: int, m: int) -> Matrix:
    """Return the difference of the two distribution functions after each rank (row of labels)."""
    return np.cumsum(np.where(labels, 1 / n, -1 / m), axis=0)


Codes = npt.NDArray[np.int64]


def kmeans_bins(series: Matrix, *, bins: int = 5, rounds: int = 100) -> Codes:
    """Assign the values of each column to bins by one-dimensional k-means.

    The initial centres come from equal bins over the range, as in scikit-learn's `KBinsDiscretizer`. A constant
    column has one bin.
    """
    low, high = series.min(axis=0), series.max(axis=0)
    edges = low + (high - low) * (np.arange(bins)[:, None] + 0.5) / bins
    centres = edges
    code = np.zeros(series.shape, dtype=np.int64)
    columns = np.arange(series.shape[1])
    for _ in range(rounds):
        limits = (centres[1:] + centres[:-1]) / 2
        code = (series[None] >= limits[:, None]).sum(axis=0)
        cell = (code * series.shape[1] + columns).ravel()
        size = bins * series.shape[1]
        count = np.bincount(cell, minlength=size).reshape(bins, -1)
        total = np.bincount(cell, weights=series.ravel(), minlength=size).reshape(bins, -1)
        means = np.sort(np.where(count > 0, total / np.maximum(count, 1), centres), axis=0)
        if np.allclose(means, centres, rtol=1e-9, atol=0):
            break
        centres = means
    return np.where(high > low, code, 0)


def chi_square(x: Codes, y: Codes, given: Sequence[Codes] = ()) -> tuple[float, float]:
    """Test whether x and y are independent within each combination of the conditioning codes.

    Returns
    -------
    p, statistic
        Only values that occur within a combination count as degrees of freedom; p is 1 if there are none.
    """
    stratum = np.zeros(len(x), dtype=np.int64)
    for code in given:
        stratum = np.unique(stratum * (int(code.max(initial=0)) + 1) + code, return_inverse=True)[1]
    xs, ys = int(x.max(initial=0)) + 1, int(y.max(initial=0)) + 1
    strata = int(stratum.max(initial=0)) + 1
    table = np.bincount((stratum * xs + x) * ys + y, minlength=strata * xs * ys).reshape(strata, xs, ys)
    by_x, by_y = table.sum(axis=2), table.sum(axis=1)
    size = by_x.sum(axis=1)
    expected = by_x[:, :, None] * by_y[:, None, :] / np.maximum(size, 1)[:, None, None]
    is_expected = expected > 0
    statistic = float(((table[is_expected] - expected[is_expected]) ** 2 / expected[is_expected]).sum())
    freedom = int((((by_x > 0).sum(axis=1) - 1) * ((by_y > 0).sum(axis=1) - 1))[size > 0].sum())
    return (float(chdtrc(freedom, statistic)), statistic) if freedom > 0 else (1.0, 0.0)


def partial_correlation(x: Matrix, y: Matrix, given: Matrix) -> float:
    """Return the correlation of the residuals of x and y after regression on other columns; 0 without residuals.

    Parameters
    ----------
    x, y
        [n]
    given
        [n, p]
    """
    pair = np.column_stack([x, y])
    design = np.column_stack([np.ones(len(pair)), given])
    residuals = pair - design @ np.linalg.lstsq(design, pair, rcond=None)[0]
    squares = (residuals**2).sum(axis=0)
    # Residuals of a constant are not exactly zero, because of rounding errors.
    negligible = 1e-10 * ((pair - pair.mean(axis=0)) ** 2).sum(axis=0) + 1e-24 * (pair**2).sum(axis=0)
    if (squares <= negligible).any():
        return 0.0
    return float(np.clip(residuals[:, 0] @ residuals[:, 1] / np.sqrt(squares.prod()), -1.0, 1.0))


def correlation_p_value(correlation: Matrix | float, samples: int, given: int = 0) -> Matrix:
    """Return the two-sided p-value of partial correlations by Fisher's z; 1 for too few samples.

    >>> float(correlation_p_value(0.5, 28).round(4))
    0.006
    """
    freedom = samples - given - 3
    if freedom < 1:
        return np.ones_like(np.asarray(correlation, dtype=float))
    z = np.arctanh(np.clip(np.abs(correlation), 0.0, 1 - 1e-12)) * np.sqrt(freedom)
    return np.asarray(2 * ndtr(-z), dtype=float)


_BLOCK_FLOATS = 2_000_000


def knn_information(series: Matrix, target: Matrix, *, neighbours: int = 3) -> Matrix:
    """Estimate the mutual information of each series and its target.

    Parameters
    ----------
    series
        [d, n] values; one row per series.
    target
        [n] one target for all, or [d, n] one for each.
    neighbours
        Size of the neighbourhood. If it is below 1, or not below n, the result is 0.

    References
    ----------
    Kraskov, Stoegbauer, Grassberger, Estimating mutual information, Phys. Rev. E 69, 2004.
    """
    count, samples = series.shape
    if not 1 <= neighbours < samples:
        return np.zeros(count)
    x = _scale_to_unit_spread(series)
    y = _scale_to_unit_spread(np.atleast_2d(target))
    result = np.empty(count)
    rows = max(1, _BLOCK_FLOATS // samples**2)
    is_shared = len(y) == 1
    shared_distances = _compute_distances(y) if is_shared else None
    for start in range(0, count, rows):
        piece = slice(start, start + rows)
        dx = _compute_distances(x[piece])
        dy = _compute_distances(y[piece]) if shared_distances is None else shared_distances
        joint = np.maximum(dx, dy)
        # Index 0 is the sample itself. The radius excludes the last neighbour.
        radius = np.partition(joint, neighbours, axis=2)[:, :, neighbours, None]
        radius = np.nextafter(radius, 0)
        within_x = (dx <= radius).sum(axis=2)
        within_y = (dy <= radius).sum(axis=2)
        result[piece] = -(digamma(within_x) + digamma(within_y)).mean(axis=1)
    return np.maximum(result + digamma(samples) + digamma(neighbours), 0.0)


def _scale_to_unit_spread(series: Matrix) -> Matrix:
    spread = series.std(axis=1, keepdims=True)
    return series / np.where(spread > 0, spread, 1.0)


def _compute_distances(series: Matrix) -> Matrix:
    return np.abs(series[:, :, None] - series[:, None, :])


MAX_CAUSES = 3

Lagged = tuple[int, int]
"""(series, steps ago)"""


@dataclass(frozen=True, kw_only=True)
class LaggedLinks:
    """Result of a search among k series."""

    causes: tuple[tuple[Lagged, ...], ...]
    """Strongest lagged causes of each series, strongest first; used as conditions of tests."""
    links: frozenset[tuple[int, int]]
    """(cause, effect); links within one step have no direction and appear in both directions."""


def lagged_links(series: Matrix, *, lags: int, candidate_level: float = 0.1, link_level: float = 0.001) -> LaggedLinks:
    """Search for lagged links by partial correlation.

    Parameters
    ----------
    series
        [n, k] finite values; constant columns have no links.
    lags
        Longest delay in steps.
    candidate_level, link_level
        Largest p-value of a candidate and of a link.

    Notes
    -----
    The cost is O(k²·lags·n) for the candidates, plus O(k²) regressions on at most 2·MAX_CAUSES columns. Candidates are
    tested conditional on up to `MAX_CAUSES` of the strongest other candidates; only the remaining ones are tested as
    delayed links.

    References
    ----------
    Runge et al., Detecting and quantifying causal associations in large nonlinear time series datasets, Science
    Advances 5, 2019.
    """
    samples, count = series.shape
    if samples <= 2 * lags + 2 * MAX_CAUSES + 3:
        return LaggedLinks(causes=((),) * count, links=frozenset())
    causes = tuple(_find_candidates(series, target, lags, candidate_level) for target in range(count))
    links: set[tuple[int, int]] = set()
    for effect in range(count):
        for cause, lag in causes[effect]:
            conditions = [other for other in causes[effect] if other != (cause, lag)]
            conditions += [(other, lag + earlier) for other, earlier in causes[cause]]
            if cause != effect and link_p_value(series, (cause, lag), effect, conditions, 2 * lags) <= link_level:
                links.add((cause, effect))
        for other in range(effect):
            conditions = [*causes[effect], *causes[other]]
            if link_p_value(series, (other, 0), effect, conditions, 2 * lags) <= link_level:
                links |= {(other, effect), (effect, other)}
    return LaggedLinks(causes=causes, links=frozenset(links))


def link_p_value(series: Matrix, cause: Lagged, effect: int, given: list[Lagged], earliest: int) -> float:
    """Return the two-sided p-value of the partial correlation of a delayed cause and an effect."""
    conditions = _shift_series(series, sorted(set(given) - {cause, (effect, 0)}), earliest)
    correlation = partial_correlation(
        _shift_series(series, [cause], earliest)[:, 0], series[earliest:, effect], conditions
    )
    return float(correlation_p_value(correlation, len(conditions), conditions.shape[1]))


def _find_candidates(series: Matrix, target: int, lags: int, level: float) -> tuple[Lagged, ...]:
    names = [(other, lag) for lag in range(1, lags + 1) for other in range(series.shape[1])]
    delayed = _shift_series(series, names, lags)
    y = series[lags:, target]
    strength = np.abs(_compute_correlations(delayed, y))
    candidates = [int(index) for index in np.flatnonzero(correlation_p_value(strength, len(y)) <= level)]
    for size in range(1, MAX_CAUSES + 1):
        candidates.sort(key=lambda index: (-strength[index], names[index]))
        dependent: list[int] = []
        for index in candidates[: MAX_CAUSES * 4]:
            conditions = [other for other in candidates if other != index][:size]
            correlation = abs(partial_correlation(delayed[:, index], y, delayed[:, conditions]))
            strength[index] = min(strength[index], correlation)
            if correlation_p_value(correlation, len(y), len(conditions)) <= level:
                dependent.append(index)
        candidates = dependent
    candidates.sort(key=lambda index: (-strength[index], names[index]))
    return tuple(names[index] for index in candidates[:MAX_CAUSES])


def _shift_series(series: Matrix, names: list[Lagged], earliest: int) -> Matrix:
    if not names:
        return np.empty((len(series) - earliest, 0))
    return np.column_stack([series[earliest - lag : len(series) - lag, other] for other, lag in names])


def _compute_correlations(columns: Matrix, y: Matrix) -> Matrix:
    a, b = columns - columns.mean(axis=0), y - y.mean()
    product = np.sqrt((a**2).sum(axis=0) * (b**2).sum())
    return np.divide(b @ a, product, out=np.zeros(a.shape[1]), where=product > 1e-12)
