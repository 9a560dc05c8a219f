"""Score diagnosis methods and controls on the same episodes, with confidence intervals.

`evaluate` runs methods on a dataset, `score` scores answers computed elsewhere, `compare` compares two evaluations, and
`diagnose` analyses one incident. All return records and print nothing.

execution      run baselines on episodes, in parallel and isolated
recordings     run detectors online over recordings
predictions    read files with predictions of external models
agent_answers  recorded runs of LLM agents as rows; `agent_tasks` are tasks for Inspect
results        result rows, one per answer, and `results.parquet`
scoring        metrics, each declared once; intervals and tests over episodes
leaderboards   tables computed from rows
diagnosis      analysis of one incident
comparison     comparison of two evaluations
reports        the HTML report
cli            the commands
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.evaluators.comparison.pairing import Comparison, compare
    from faultset.evaluators.diagnosis.analysis import diagnose
    from faultset.evaluators.diagnosis.records import IncidentAnalysis
    from faultset.evaluators.evaluation import Evaluation, score
    from faultset.evaluators.evaluation_call import evaluate
    from faultset.evaluators.execution.dataset_source import read_truths
    from faultset.evaluators.execution.method_runs import EvaluationStart
    from faultset.evaluators.execution.settings import EvaluationOptions
    from faultset.evaluators.results.rows import ResultRow
    from faultset.evaluators.results.truth import Truth
    from faultset.evaluators.scoring.metrics import Metric

__all__ = [
    "Comparison",
    "Evaluation",
    "EvaluationOptions",
    "EvaluationStart",
    "IncidentAnalysis",
    "Metric",
    "ResultRow",
    "Truth",
    "compare",
    "diagnose",
    "evaluate",
    "read_truths",
    "score",
]

__getattr__, __dir__ = lazy_names(__name__)
