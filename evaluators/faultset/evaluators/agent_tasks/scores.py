"""Scores of Inspect's samples, by the measures of our leaderboards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from faultset.agents.interface.inspect_tools import session_report
from faultset.agents.runs.inspect_metadata import CLUSTER, QUESTION, AskedQuestion
from faultset.agents.runs.record import AgentRun
from faultset.evaluators.agent_evaluation.rows import RowContext, rows_of_run
from faultset.evaluators.agent_tasks.shared_datasets import shared_dataset
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth, truth_of
from faultset.evaluators.scoring.localization import LOCALIZATION_METRICS
from faultset.evaluators.scoring.metrics import ScoredCase
from faultset.evaluators.scoring.registry import TASK_METRICS, right_of

LOCALIZATION = ("ac1", "ac3", "ac5", "mrr")
CORRECT = "correct"


@scorer(metrics={"*": [mean(), stderr(cluster=CLUSTER)]})
def answer_scorer() -> Scorer:
    """Score the submitted answer: AC@1, AC@3, AC@5 and MRR of a localization, otherwise right or wrong.

    Localization and root cause of an episode without a fault are not scored, as in the leaderboards.
    """

    async def score(state: TaskState, target: Target) -> Score:
        question = AskedQuestion.model_validate(state.metadata[QUESTION])
        dataset, episode = shared_dataset(question), str(state.sample_id)
        truth = truth_of(dataset.label(episode), dataset.view(episode).context)
        report = session_report(state.store)
        answer = json.dumps(report.get("answer"))
        values = score_report(question, report, truth)
        if values is None:
            return Score.unscored(reason="the episode has no fault", answer=answer)
        return Score(value=dict(values), answer=answer, explanation=report.get("status_reason") or None)

    return score


def score_report(question: AskedQuestion, report: Mapping[str, Any], truth: Truth) -> Mapping[str, float] | None:
    """Return the scores of a session's report; None if the leaderboards do not score such an episode."""
    row = _row(question, report, truth)
    if row.task != "detection" and not TASK_METRICS[row.task].poses(truth):
        return None
    if row.task == "localization":
        case = ScoredCase(rows=(row,))
        return {metric.name: case.value(metric) for metric in LOCALIZATION_METRICS if metric.name in LOCALIZATION}
    return {CORRECT: right_of(row)}


def _row(question: AskedQuestion, report: Mapping[str, Any], truth: Truth) -> ResultRow:
    run = AgentRun(
        run="sample",
        format="inspect",
        agent="agent",
        task=question.task,
        protocol=question.protocol,
        status=report.get("status", "no_answer"),
        status_reason=report.get("status_reason", ""),
        answer_json=None if report.get("answer") is None else json.dumps(report["answer"]),
        alarm_ns=question.alarm_ns,
        answered_ns=report.get("answered_ns"),
        steps=0,
        tool_calls=0,
        tool_errors=0,
        repeats=0,
    )
    context = RowContext(
        label="agent",
        kind="agent",
        settings="",
        code="",
        dataset=truth.app,
        version=question.version,
        split="",
        detector_of=lambda episode: question.alarm_detector or "",
        folds={},
        majority_labels={},
    )
    return rows_of_run(run, truth, context)[0]
