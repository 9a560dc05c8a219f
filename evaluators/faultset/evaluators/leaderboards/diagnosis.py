"""Root cause tables: system level and fault type, alone and together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scoring.diagnosis import macro_f1
from faultset.evaluators.statistics.clusters import clustered_mean
from faultset.evaluators.statistics.estimates import TOO_FEW, Estimate, unknown
from faultset.evaluators.statistics.median_times import median_time

DIAGNOSIS_METRICS = (
    Metric(
        name="joint",
        title="joint",
        unit="share",
        meaning="system level and fault type are both right: those of the fault, or together of one of several faults",
    ),
    Metric(name="parts", title="parts", unit="share", meaning="mean of the two parts, each counted as half a case"),
    Metric(name="level", title="level", unit="share", meaning="the system level is right"),
    Metric(name="type", title="type", unit="share", meaning="the fault type is right"),
    Metric(
        name="macro_f1_level", title="macro-F1 level", unit="share", meaning="mean F1 over the system levels that occur"
    ),
    Metric(
        name="macro_f1_type", title="macro-F1 type", unit="share", meaning="mean F1 over the fault types that occur"
    ),
    Metric(
        name="time_to_diagnose_median",
        title="median time to diagnose",
        unit="s",
        better="lower",
        meaning="median seconds from the onset to the end of the shortest view from which on both parts are right, "
        "over the budgets of --evidence; computing time is not counted, a miss is infinite",
    ),
    Metric(
        name="joint_answered",
        title="joint answered",
        unit="share",
        meaning="joint over episodes with an answer alone; what a method leaves out does not count against it",
    ),
    Metric(name="answered", title="answered", unit="share", meaning="share of episodes with a level or a type named"),
    Metric(
        name="correct_abstentions",
        title="correct abstentions",
        unit="share",
        meaning="share of no-fault episodes in which no alarm was given or nothing was named",
    ),
)
NOTHING_TO_LEARN_FROM = f"{TOO_FEW}: no training episode has a label of a fault"
TABLE_COLUMNS = DIAGNOSIS_METRICS[:6]


@dataclass(frozen=True, kw_only=True)
class DiagnosisFacts:
    """What one diagnoser answered on one episode; means over seeds where it has several."""

    truth: Truth
    joint: float
    level: float
    type: float
    answered: float
    answers: tuple[tuple[str | None, str | None], ...]
    """(level, type) of each seed."""
    majority_label: tuple[str, str] | None
    """The best constant answer: the most frequent pair of the training labels."""

    @property
    def parts(self) -> float:
        """Mean of the two parts."""
        return (self.level + self.type) / 2


def diagnosis_facts(rows: Sequence[ResultRow]) -> DiagnosisFacts:
    """Put the rows of one diagnoser on one episode, one for each seed, together; no answer is a miss."""
    truth = rows[0].truth
    answers = [_answer_of(row) for row in rows]
    level = [a in _parts(truth, 0) for a, _ in answers]
    kind = [b in _parts(truth, 1) for _, b in answers]
    return DiagnosisFacts(
        truth=truth,
        joint=float(np.mean([pair in truth.diagnoses for pair in answers])),
        level=float(np.mean(level)),
        type=float(np.mean(kind)),
        answered=float(np.mean([pair != (None, None) for pair in answers])),
        answers=tuple(answers),
        majority_label=rows[0].majority_label,
    )


def _parts(truth: Truth, place: int) -> frozenset[str]:
    """System levels (place 0) or fault types (1) that are right."""
    return frozenset(pair[place] for pair in truth.diagnoses)


def _answer_of(row: ResultRow) -> tuple[str | None, str | None]:
    if row.status != "ok":
        return None, None
    return row.answer.get("system_level"), row.answer.get("fault_type")


def diagnosis_estimates(
    episodes: Sequence[DiagnosisFacts], abstentions: Sequence[float], times: Mapping[str, float] | None = None
) -> dict[str, Estimate]:
    """Every root cause metric of one diagnoser.

    Parameters
    ----------
    abstentions
        For each no-fault episode the share of seeds that named nothing.
    times
        Seconds after the onset up to which each episode had to be seen, where that was tried.
    """
    keys = [one.truth.cluster for one in episodes]
    estimates = {
        name: clustered_mean([getattr(one, name) for one in episodes], keys)
        for name in ("joint", "parts", "level", "type", "answered")
    }
    answered = [one for one in episodes if one.answered]
    estimates["joint_answered"] = clustered_mean(
        [one.joint for one in answered], [one.truth.cluster for one in answered]
    )
    estimates |= _macro(episodes)
    estimates["time_to_diagnose_median"] = median_time(
        times, {one.truth.episode: one.truth.cluster for one in episodes}
    )
    if not episodes:
        estimates = dict.fromkeys(estimates, unknown(NOTHING_TO_LEARN_FROM))
    estimates["correct_abstentions"] = clustered_mean(list(abstentions), list(range(len(abstentions))))
    return estimates


def _macro(episodes: Sequence[DiagnosisFacts]) -> dict[str, Estimate]:
    """Macro-F1 of each seed, averaged; no interval, because classes come and go with the episodes."""
    found = {}
    for place, name in enumerate(("macro_f1_level", "macro_f1_type")):
        truths = [_parts(one.truth, place) for one in episodes]
        seeds = min((len(one.answers) for one in episodes), default=0)
        values = [macro_f1([one.answers[seed][place] for one in episodes], truths) for seed in range(seeds)]
        value = float(np.mean(values)) if values else float("nan")
        found[name] = Estimate(value=value, n=len(episodes), reason="no interval: classes come and go")
    return found


def constant_floor(episodes: Sequence[DiagnosisFacts]) -> dict[str, Estimate]:
    """Return what the best constant answer scores: the most frequent pair of the training labels of each fold."""
    if not any(one.majority_label for one in episodes):
        return {}
    label = [(one.truth, one.majority_label or ("", "")) for one in episodes]
    level = [float(pair[0] in _parts(truth, 0)) for truth, pair in label]
    kind = [float(pair[1] in _parts(truth, 1)) for truth, pair in label]
    joint = [float(pair in truth.diagnoses) for truth, pair in label]
    values: Mapping[str, list[float]] = {"joint": joint, "level": level, "type": kind, "parts": [*level, *kind]}
    floor = {
        name: Estimate(value=float(np.mean(v)), n=len(episodes), method="best constant of the training labels")
        for name, v in values.items()
    }
    for place, name in enumerate(("macro_f1_level", "macro_f1_type")):
        constant = [None if one.majority_label is None else one.majority_label[place] for one in episodes]
        value = macro_f1(constant, [_parts(one.truth, place) for one in episodes])
        floor[name] = Estimate(value=value, n=len(episodes), method="best constant of the training labels")
    return floor
