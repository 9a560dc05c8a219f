"""Mean ranks over independent datasets: how far apart they must lie before anything is said."""

from __future__ import annotations

import math

FEWEST_DATASETS = 6
"""With fewer, Wilcoxon's signed-rank test cannot reach 0.05 either: show the table of differences instead."""


def critical_difference(methods: int, datasets: int, level: float = 0.05) -> float:
    """Distance of mean ranks at which Nemenyi's test after Friedman's tells two of several methods apart.

    Datasets must be independent; episodes are not. The verdict on two methods changes with the others in the pool
    (Benavoli et al., arXiv 1505.02288), so this is for reading, not for ranking.
    """
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - level, methods, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * datasets)))


def smallest_signed_rank_p(datasets: int) -> float:
    """Smallest two-sided p that Wilcoxon's exact signed-rank test can give for so many datasets."""
    return min(1.0, 2.0 / 2**datasets)
