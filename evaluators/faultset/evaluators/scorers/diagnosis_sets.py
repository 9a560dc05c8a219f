"""Scorers of the pair of system level and fault type that a diagnoser names, against those of all faults."""

from __future__ import annotations

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scoring.localization import SetScore, score_set


def score_pairs(row: ResultRow) -> SetScore:
    """Compare the pair that an answer names with the set of pairs that are right."""
    pair = (row.answer.get("system_level"), row.answer.get("fault_type")) if row.status == "ok" else (None, None)
    named = frozenset() if pair == (None, None) else frozenset({" / ".join(str(part) for part in pair)})
    return score_set(named, frozenset(" / ".join(pair) for pair in row.truth.diagnoses))


EXACT_DIAGNOSIS = Metric(
    name="exact_diagnosis",
    title="exact diagnosis",
    unit="share",
    task="rca",
    headline=False,
    meaning="the level and type that are named are those of every fault",
    compute=lambda row: float(score_pairs(row).exact),
)
DIAGNOSIS_F1 = Metric(
    name="diagnosis_f1",
    title="diagnosis F1",
    unit="share",
    task="rca",
    headline=False,
    meaning="F1 of the pair of level and type that is named against the pairs of all faults",
    compute=lambda row: score_pairs(row).f1,
)
