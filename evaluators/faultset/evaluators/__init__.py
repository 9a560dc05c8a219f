"""Score every diagnosis method on the same episodes, beside controls, with intervals.

`evaluate` runs methods on a dataset, `score` scores answers that were made elsewhere, `compare` sets two evaluations
side by side. All return records and print nothing.

execution    baselines on episodes, in parallel, each in a process that can be killed
predictions  files with answers of models that were run elsewhere
results      one row for every answer; what is stored in `results.parquet`
scoring      metrics, built-in and of other distributions, each declared once
statistics   intervals and tests over episodes
leaderboards tables computed from rows
comparison   two evaluations side by side
reports      a self-contained HTML page
agent_evaluation recorded runs of LLM agents as rows, tables and pages
cli          the commands
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.evaluators.comparison.pairing import compare
    from faultset.evaluators.comparison.records import Comparison
    from faultset.evaluators.evaluation import Evaluation, EvaluationStart
    from faultset.evaluators.evaluation_call import evaluate
    from faultset.evaluators.execution.dataset_source import read_truths
    from faultset.evaluators.execution.settings import EvaluationOptions
    from faultset.evaluators.external_answers import score
    from faultset.evaluators.results.rows import ResultRow
    from faultset.evaluators.results.truth import Truth
    from faultset.evaluators.scoring.metrics import Metric

__all__ = [
    "Comparison",
    "Evaluation",
    "EvaluationOptions",
    "EvaluationStart",
    "Metric",
    "ResultRow",
    "Truth",
    "compare",
    "evaluate",
    "read_truths",
    "score",
]

__getattr__, __dir__ = lazy_names(__name__)
