"""Scorers of the set of services that a localizer puts first, with all that is tied there."""

from __future__ import annotations

import functools

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scoring.localization import SetScore, canonical, leading, score_set


@functools.lru_cache(maxsize=64)
def _score(first: frozenset[str], causes: tuple[tuple[str, ...], ...]) -> SetScore:
    accepted = [frozenset(names) for names in causes]
    return score_set(canonical(first, accepted), canonical(frozenset().union(*accepted), accepted))


def score_first_place(row: ResultRow) -> SetScore:
    """Compare what an answer puts first with the set of causes."""
    ranking = row.ranking if row.status == "ok" else {}
    return _score(leading(ranking, row.truth.candidates), row.truth.causes)


EXACT_SET = Metric(
    name="exact_set",
    title="exact set",
    unit="share",
    task="localization",
    headline=False,
    meaning="what is put first, with all that is tied there, is exactly the set of causes",
    compute=lambda row: float(score_first_place(row).exact),
)
SET_F1 = Metric(
    name="set_f1",
    title="set F1",
    unit="share",
    task="localization",
    headline=False,
    meaning="F1 of what is put first against the set of causes",
    compute=lambda row: score_first_place(row).f1,
)
JACCARD = Metric(
    name="jaccard",
    title="Jaccard",
    unit="share",
    task="localization",
    headline=False,
    meaning="overlap of what is put first and the set of causes",
    compute=lambda row: score_first_place(row).jaccard,
)
