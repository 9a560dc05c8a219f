"""Rankings of metrics: does the right metric of the right service come first?

There is no closed list of metrics that a method was given, so metrics it leaves out are not found, and there is no
closed form of guessing.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence

from faultset.evaluators.scoring.localization import LocalizationScore, failed_score, score_ranking

_DERIVED = ("_error_rate", "_mean", "_rate")


def score_metrics(
    ranked: Sequence[tuple[str, str, float]], causes: Sequence[tuple[str, str]], depths: Sequence[int] = (1, 3, 5)
) -> LocalizationScore:
    """Score [service, metric, score] triples against (service, metric) causes; ties by expectation."""
    scores = {f"{service}\0{metric}": score for service, metric, score in ranked if not math.isnan(score)}
    if not scores:
        return failed_score(["-"])
    right = [
        frozenset(f"{s}\0{m}" for s, m, _ in ranked if s == service and metric_matches(m, metric))
        for service, metric in causes
    ]
    return score_ranking(scores, right, list(scores), depths)


def metric_matches(named: str, true: str) -> bool:
    """Whether a metric that a method names is one that the truth names.

    The truth may hold a pattern with `*`; a method may name what was derived from the stored metric, such as its rate.

    Examples
    --------
    >>> metric_matches('container_cpu_usage_seconds_total{mode="user"}', "container_cpu_*")
    True
    """
    stem = named.partition("{")[0]
    names = {stem, *(stem.removesuffix(suffix) for suffix in _DERIVED)}
    return any(fnmatch.fnmatchcase(name, true) for name in names)
