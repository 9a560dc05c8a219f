"""Threshold policies against vectors computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.core.errors import UsageError
from faultset.evaluators.scoring.thresholds import HealthyScores, TrainBudget, TrainQuantile, choose_policies

CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


def test_a_train_quantile_lets_its_share_of_healthy_samples_pass():
    training = [
        HealthyScores(scores=np.arange(1.0, 101.0), hours=1.0),
        HealthyScores(scores=np.arange(101.0, 201.0), hours=1.0),
    ]
    threshold = TrainQuantile(share=0.95).threshold(training)
    assert np.mean(np.arange(1.0, 201.0) > threshold) == 0.05
    assert TrainQuantile().name == "train-quantile(0.995)"
    assert math.isnan(TrainQuantile().threshold([]))


def test_a_budget_counts_alarms_and_not_samples():
    # two runs of three samples reach 5, one of them 9
    scores = np.array([0, 5, 5, 5, 0, 0, 5, 9, 5, 0], dtype=float)
    training = [HealthyScores(scores=scores, hours=1.0, consecutive=1)]
    assert TrainBudget(per_hour=2).threshold(training) == 0.0
    assert TrainBudget(per_hour=1).threshold(training) == 5.0
    assert TrainBudget(per_hour=0.5).threshold(training) == 9.0
    lasting = [HealthyScores(scores=scores, hours=1.0, consecutive=2)]
    assert TrainBudget(per_hour=0.5).threshold(lasting) == 5.0
    assert math.isnan(TrainBudget().threshold([]))


def test_policies_are_named_before_the_test_and_reference_is_always_there():
    assert [policy.name for policy in choose_policies([])] == ["reference", "train-quantile(0.995)"]
    assert [policy.name for policy in choose_policies(["reference"])] == ["reference"]
    named = choose_policies(["train-quantile(.9)", "train-budget(2)"])
    assert [policy.name for policy in named] == ["reference", "train-quantile(0.9)", "train-budget(2)"]
    with pytest.raises(UsageError, match="did you mean"):
        choose_policies(["train-quantil"])
    with pytest.raises(UsageError, match="between 0 and 1"):
        choose_policies(["train-quantile(2)"])
