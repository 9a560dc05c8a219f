"""Values of scorers: one for each episode, and estimates over the episodes of a table."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.statistics.clusters import SHARE, clustered_mean
from faultset.evaluators.statistics.estimates import Estimate, unknown

_log = logging.getLogger(__name__)
_reported: set[str] = set()

Estimates = Mapping[str, Mapping[str, Estimate]]
"""Baseline -> metric."""


def value_on_episode(scorer: Metric, rows: Sequence[ResultRow]) -> float:
    """Return the mean over the seeds of one method on one episode; NaN where a scorer fails, which is logged once."""
    assert scorer.compute is not None
    try:
        values = [float(scorer.compute(row)) for row in rows]
    except Exception as error:  # code of a third party
        if scorer.name not in _reported:
            _reported.add(scorer.name)
            _log.warning(
                'the scorer "%s" failed on episode %s (%s: %s); its value is missing there',
                scorer.name,
                rows[0].episode,
                type(error).__name__,
                error,
            )
        return math.nan
    return float(np.mean(values))


def values_on_episodes(
    scorer: Metric, rows: Mapping[str, Sequence[ResultRow]], episodes: Iterable[str]
) -> dict[str, float]:
    """Return episode -> value of one method, on those of the episodes that the scorer is for."""
    chosen = (e for e in sorted(episodes) if e in rows and _is_for(scorer, rows[e][0].truth))
    return {e: value_on_episode(scorer, rows[e]) for e in chosen}


def estimate(scorer: Metric, rows: Mapping[str, Sequence[ResultRow]], episodes: Iterable[str]) -> Estimate:
    """Return the mean over episodes with its interval."""
    values = values_on_episodes(scorer, rows, episodes)
    if all(math.isnan(value) for value in values.values()):
        return unknown(scorer.unscored)
    keys = [rows[e][0].truth.cluster for e in values]
    return clustered_mean(list(values.values()), keys, bounds=SHARE if scorer.unit == "share" else None)


def floor(scorer: Metric, truths: Iterable[Truth]) -> Estimate | None:
    """Return what guessing scores on these episodes; None where the scorer does not know."""
    if scorer.floor is None:
        return None
    values = [scorer.floor(truth) for truth in truths if _is_for(scorer, truth)]
    known = [value for value in values if not math.isnan(value)]
    return Estimate(value=float(np.mean(known)), n=len(known), method="closed form") if known else None


def _is_for(scorer: Metric, truth: Truth) -> bool:
    return scorer.episodes == "all" or truth.faulty == (scorer.episodes == "fault")


def sort_key(metrics: tuple[Metric, ...], estimates: Estimates) -> Callable[[str], tuple[float, ...]]:
    """Return a key that sorts the best first, by the first metrics in turn; unknown values come last."""

    def key(name: str) -> tuple[float, ...]:
        values = []
        for metric in metrics[:4]:
            value = estimates[name][metric.name].value
            if math.isnan(value):
                values.append(math.inf)
            else:
                values.append(round(-value if metric.better == "higher" else value, 9))
        return tuple(values)

    return key
