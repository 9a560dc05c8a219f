"""Links between series, some steps ago or at once, that remain given the causes of each series.

A compact PCMCI: candidates by lagged correlation, thinned by conditioning on the strongest others, then each link
tested given the causes of both ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from faultset.baselines.stats.independence_tests import correlation_p_value, partial_correlation
from faultset.baselines.stats.scaling import Matrix

MOST_CAUSES = 3

Lagged = tuple[int, int]
"""(series, steps ago)"""


@dataclass(frozen=True, kw_only=True)
class LaggedLinks:
    """Result of a search among k series."""

    causes: tuple[tuple[Lagged, ...], ...]
    """The few strongest lagged causes of each series, strongest first; conditions of later tests."""
    links: frozenset[tuple[int, int]]
    """(cause, effect); links within one step have no direction and stand both ways."""


def lagged_links(series: Matrix, *, lags: int, candidate_level: float = 0.1, link_level: float = 0.001) -> LaggedLinks:
    """Search for links.

    Parameters
    ----------
    series
        [n, k] finite values; constant columns have no links.
    lags
        Longest delay in steps.
    candidate_level, link_level
        Largest p-value with which a candidate, and a link, is kept.

    Notes
    -----
    Time is O(k²·lags·n) for the candidates and O(k²) regressions on at most 2·MOST_CAUSES columns. The candidates of
    a series are thinned given at most `MOST_CAUSES` of the strongest, and only those are tested as delayed links.

    References
    ----------
    Runge et al., Detecting and quantifying causal associations in large nonlinear time series datasets, Science
    Advances 5, 2019.
    """
    samples, count = series.shape
    if samples <= 2 * lags + 2 * MOST_CAUSES + 3:
        return LaggedLinks(causes=((),) * count, links=frozenset())
    causes = tuple(_candidates(series, target, lags, candidate_level) for target in range(count))
    links: set[tuple[int, int]] = set()
    for effect in range(count):
        for cause, lag in causes[effect]:
            given = [other for other in causes[effect] if other != (cause, lag)]
            given += [(other, lag + earlier) for other, earlier in causes[cause]]
            if cause != effect and link_p_value(series, (cause, lag), effect, given, 2 * lags) <= link_level:
                links.add((cause, effect))
        for other in range(effect):
            given = [*causes[effect], *causes[other]]
            if link_p_value(series, (other, 0), effect, given, 2 * lags) <= link_level:
                links |= {(other, effect), (effect, other)}
    return LaggedLinks(causes=causes, links=frozenset(links))


def link_p_value(series: Matrix, cause: Lagged, effect: int, given: list[Lagged], earliest: int) -> float:
    """Two-sided p-value of the partial correlation of a delayed cause and an effect."""
    conditions = _shifted(series, sorted(set(given) - {cause, (effect, 0)}), earliest)
    found = partial_correlation(_shifted(series, [cause], earliest)[:, 0], series[earliest:, effect], conditions)
    return float(correlation_p_value(found, len(conditions), conditions.shape[1]))


def _candidates(series: Matrix, target: int, lags: int, level: float) -> tuple[Lagged, ...]:
    names = [(other, lag) for lag in range(1, lags + 1) for other in range(series.shape[1])]
    delayed = _shifted(series, names, lags)
    y = series[lags:, target]
    strength = np.abs(_correlations(delayed, y))
    near = [int(place) for place in np.flatnonzero(correlation_p_value(strength, len(y)) <= level)]
    for size in range(1, MOST_CAUSES + 1):
        near.sort(key=lambda place: (-strength[place], names[place]))
        kept: list[int] = []
        for place in near[: MOST_CAUSES * 4]:
            given = [other for other in near if other != place][:size]
            found = abs(partial_correlation(delayed[:, place], y, delayed[:, given]))
            strength[place] = min(strength[place], found)
            if correlation_p_value(found, len(y), len(given)) <= level:
                kept.append(place)
        near = kept
    near.sort(key=lambda place: (-strength[place], names[place]))
    return tuple(names[place] for place in near[:MOST_CAUSES])


def _shifted(series: Matrix, names: list[Lagged], earliest: int) -> Matrix:
    if not names:
        return np.empty((len(series) - earliest, 0))
    return np.column_stack([series[earliest - lag : len(series) - lag, other] for other, lag in names])


def _correlations(columns: Matrix, y: Matrix) -> Matrix:
    a, b = columns - columns.mean(axis=0), y - y.mean()
    product = np.sqrt((a**2).sum(axis=0) * (b**2).sum())
    return np.divide(b @ a, product, out=np.zeros(a.shape[1]), where=product > 1e-12)
