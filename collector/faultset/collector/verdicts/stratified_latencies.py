"""Comparison of latencies stratified by load, for client requests whose rate changes by itself.

A burst makes answers slow without a fault. So every request gets the load at its time, quartiles of that load in the
healthy time divide requests into four strata, and each stratum weighs as much among healthy requests as it does among
suspect ones. Suspect requests at a higher load than any healthy one have nothing to be compared with and are left out.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

LOAD = "load"
LATENCY_QUANTILE = 0.95
"""Quantile of latencies that is compared."""
_MEMORY_S = 2.0
_STEP_S = 0.1
_STRATA = 4
_LEAST = 5


def with_load(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the requests with a column `load`: arrivals of the last seconds before each, older ones counting less."""
    times_s = requests["scheduled"].astype("int64").to_numpy() / 1e9
    if len(times_s) == 0:
        return requests.assign(**{LOAD: np.zeros(0)})
    place = ((times_s - times_s.min()) / _STEP_S).astype("int64")
    counts = np.bincount(place).astype("float64")
    memory = pd.Series(counts).ewm(alpha=1 - np.exp(-_STEP_S / _MEMORY_S), adjust=False).mean().to_numpy()
    return requests.assign(**{LOAD: memory[place] / _STEP_S})


def compare_stratified(
    before: np.ndarray, after: np.ndarray, load_before: np.ndarray, load_after: np.ndarray
) -> tuple[float, float, float] | None:
    """Compare latencies of healthy requests with those of suspect ones, within strata of the load at their times.

    Returns
    -------
    tuple or None
        The 95 % quantiles before and after, and the one-sided p-value of van Elteren's stratified rank test that the
        later ones are longer; None when too few requests have others at the same load to be compared with.
    """
    bounds = np.quantile(load_before, np.linspace(0, 1, _STRATA + 1)[1:-1])
    stratum_before = np.searchsorted(bounds, load_before, side="right")
    comparable = load_after <= load_before.max()
    after, stratum_after = after[comparable], np.searchsorted(bounds, load_after[comparable], side="right")
    healthy_counts = np.bincount(stratum_before, minlength=_STRATA)
    suspect_counts = np.bincount(stratum_after, minlength=_STRATA)
    usable = np.flatnonzero((healthy_counts >= _LEAST) & (suspect_counts > 0))
    kept = np.isin(stratum_after, usable)
    if kept.sum() < _LEAST:
        return None
    statistic = variance = 0.0
    for stratum in usable:
        healthy, suspect = int(healthy_counts[stratum]), int(suspect_counts[stratum])
        ranks = stats.rankdata(np.concatenate([before[stratum_before == stratum], after[stratum_after == stratum]]))
        size = healthy + suspect
        statistic += (float(ranks[healthy:].sum()) - suspect * (size + 1) / 2) / (size + 1)
        spread = float(((ranks - (size + 1) / 2) ** 2).sum()) / (size - 1) if size > 1 else 0.0
        variance += healthy * suspect / size * spread / (size + 1) ** 2
    p = float(stats.norm.sf(statistic / variance**0.5)) if variance > 0 else 1.0
    weight_of = np.zeros(_STRATA)
    weight_of[usable] = suspect_counts[usable] / healthy_counts[usable]
    return (
        _weighted_quantile(before, weight_of[stratum_before], LATENCY_QUANTILE),
        float(np.quantile(after[kept], LATENCY_QUANTILE)),
        p,
    )


def _weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    summed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(summed, share * summed[-1])])
