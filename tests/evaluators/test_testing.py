"""Built-in metrics keep the contract of scorers, and the check finds what breaks it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from faultset.core.errors import UsageError
from faultset.evaluators import Metric
from faultset.evaluators.scoring.registry import TASK_METRICS
from faultset.evaluators.testing import check_scorer

NAMED = Metric(
    name="named",
    title="named",
    unit="share",
    task="localization",
    meaning="share of answers that name a service",
    compute=lambda row: float(bool(row.ranking)),
)


BUILT_IN = [metric for task in TASK_METRICS.values() for metric in task.metrics if metric.compute]


@pytest.mark.parametrize("metric", BUILT_IN, ids=lambda metric: f"{metric.task}-{metric.name}")
def test_a_built_in_metric_of_single_answers_keeps_the_contract(metric: Metric):
    check_scorer(metric)


@pytest.mark.parametrize("task", ["detection", "localization", "rca"])
def test_a_scorer_of_every_task_can_be_checked(task: str):
    check_scorer(dataclasses.replace(NAMED, task=task, compute=lambda row: float(row.status == "ok"), episodes="all"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"compute": lambda row: 2.0}, "must be from 0 to 1, got 2.0"),
        ({"compute": lambda row: 1 / len(row.ranking)}, "fails on an answer with status"),
        ({"compute": lambda row: "much"}, "returns str"),
        ({"compute": lambda row: math.nan}, "is NaN for every answer"),
        ({"compute": lambda row: float(row.status != "ok")}, "better than every answer"),
        ({"compute": lambda row: float(next(iter(row.ranking), "") == "geo")}, "must not depend on the order"),
        ({"floor": lambda truth: -1.0}, "must be from 0 to 1, got -1.0 for floor"),
    ],
    ids=["range", "error", "type", "never a number", "failure is best", "order", "floor"],
)
def test_a_scorer_that_breaks_a_rule_is_found(changes, sentence: str):
    with pytest.raises(AssertionError, match=sentence):
        check_scorer(dataclasses.replace(NAMED, **changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"compute": None}, "must be a faultset.evaluators.Metric with compute"),
        ({"task": "ranking"}, "task='ranking'; choose from 'detection', 'localization', 'rca'"),
        ({"unit": "%"}, "unit='%'"),
        ({"name": "My Score"}, "must consist of lower-case letters"),
        ({"meaning": ""}, "must have a title and a meaning"),
        ({"name": "ac1"}, '"ac1" is a built-in metric of localization'),
    ],
)
def test_an_incomplete_declaration_is_one_sentence(changes, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        check_scorer(dataclasses.replace(NAMED, **changes))
