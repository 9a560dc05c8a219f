"""Thresholds, affiliation, propagation, metric rankings, sets, agents' rules: against vectors computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.core.errors import UsageError
from faultset.evaluators.scoring.diagnosis import macro_f1
from faultset.evaluators.scoring.localization import canonical, leading, random_floor, score_ranking, score_set
from faultset.evaluators.scoring.metric_rankings import metric_matches, score_metrics
from faultset.evaluators.scoring.propagation import dependents, hops, kinds_of_answer
from faultset.evaluators.scoring.thresholds import Healthy, TrainBudget, TrainQuantile, chosen_policies

CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


def test_a_train_quantile_lets_its_share_of_healthy_samples_pass():
    training = [Healthy(scores=np.arange(1.0, 101.0), hours=1.0), Healthy(scores=np.arange(101.0, 201.0), hours=1.0)]
    threshold = TrainQuantile(share=0.95).threshold(training)
    assert np.mean(np.arange(1.0, 201.0) > threshold) == 0.05
    assert TrainQuantile().name == "train-quantile(0.995)"
    assert math.isnan(TrainQuantile().threshold([]))


def test_a_budget_counts_alarms_and_not_samples():
    # two runs of three samples reach 5, one of them 9
    scores = np.array([0, 5, 5, 5, 0, 0, 5, 9, 5, 0], dtype=float)
    training = [Healthy(scores=scores, hours=1.0, consecutive=1)]
    assert TrainBudget(per_hour=2).threshold(training) == 0.0
    assert TrainBudget(per_hour=1).threshold(training) == 5.0
    assert TrainBudget(per_hour=0.5).threshold(training) == 9.0
    lasting = [Healthy(scores=scores, hours=1.0, consecutive=2)]
    assert TrainBudget(per_hour=0.5).threshold(lasting) == 5.0
    assert math.isnan(TrainBudget().threshold([]))


def test_policies_are_named_before_the_test_and_reference_is_always_there():
    assert [policy.name for policy in chosen_policies([])] == ["reference", "train-quantile(0.995)"]
    assert [policy.name for policy in chosen_policies(["reference"])] == ["reference"]
    named = chosen_policies(["train-quantile(.9)", "train-budget(2)"])
    assert [policy.name for policy in named] == ["reference", "train-quantile(0.9)", "train-budget(2)"]
    with pytest.raises(UsageError, match="did you mean"):
        chosen_policies(["train-quantil"])
    with pytest.raises(UsageError, match="between 0 and 1"):
        chosen_policies(["train-quantile(2)"])


def test_an_answer_is_a_cause_a_symptom_or_unrelated():
    assert dependents(CALLS, {"db"}) == {"cart", "web"}
    assert kinds_of_answer({"db"}, {"db"}, CALLS)["hit"] == 1.0
    assert kinds_of_answer({"web"}, {"db"}, CALLS)["symptom"] == 1.0
    assert kinds_of_answer({"pay"}, {"db"}, CALLS)["unrelated"] == 1.0
    assert kinds_of_answer(set(), {"db"}, CALLS)["none"] == 1.0
    tied = kinds_of_answer({"db", "cart", "pay", "mail"}, {"db"}, CALLS)
    assert tied == {"hit": 0.25, "symptom": 0.25, "unrelated": 0.5, "none": 0.0}


def test_hops_are_counted_in_both_directions_and_may_be_infinite():
    assert hops(CALLS, ["db"], {"db"}) == 0
    assert hops(CALLS, ["pay"], {"db"}) == 3
    assert hops(CALLS, ["mail"], {"db"}) == math.inf
    assert hops(CALLS, ["pay", "cart"], {"db"}) == 1


def test_a_circle_of_calls_ends():
    circle = [("a", "b"), ("b", "a")]
    assert dependents(circle, {"a"}) == {"b"}
    assert hops(circle, ["a"], {"c"}) == math.inf


def test_metrics_are_ranked_with_their_service():
    ranked = [("cart", "cpu", 5.0), ("db", "io_time_seconds_rate", 4.0), ("cart", "mem", 1.0)]
    score = score_metrics(ranked, [("db", "io_*")])
    assert (score.ac[1], score.ac[3], score.reciprocal_rank) == (0.0, 1.0, 0.5)
    assert score_metrics(ranked, [("db", "cpu")]).ac[5] == 0.0
    assert score_metrics([], [("db", "cpu")]).reciprocal_rank == 0.0
    several = score_metrics(ranked, [("cart", "cpu"), ("cart", "mem")])
    assert (several.ac[1], several.ac[3]) == (1.0, 1.0)


def test_a_derived_metric_stands_for_what_it_was_made_of():
    assert metric_matches("http_server_request_duration_seconds_mean", "http_server_request_duration_seconds")
    assert metric_matches('cpu_seconds_total{mode="user"}', "cpu_seconds_total")
    assert not metric_matches("cpu_seconds_total", "memory")


def test_what_is_tied_in_first_place_is_the_answer_as_a_set():
    candidates = ["a", "b", "c", "d"]
    assert leading({"a": 1.0, "b": 1.0, "c": 0.5}, candidates) == {"a", "b"}
    assert leading({}, candidates) == frozenset()
    causes = [frozenset({"geo", "mongodb-geo"}), frozenset({"rate"})]
    right = canonical(frozenset().union(*causes), causes)
    assert score_set(canonical({"mongodb-geo", "rate"}, causes), right).exact
    assert not score_set(canonical({"geo"}, causes), right).exact


def test_the_hit_that_comes_first_is_what_is_retrieved_and_then_ranked_first():
    orders = [["b", "a", "c", "d", "e", "f"], ["a", "b", "c", "d", "e", "f"], ["f", "e", "d", "c", "b", "a"]]
    scores = [
        score_ranking({name: -float(i) for i, name in enumerate(order)}, [{"a"}], list("abcdef")) for order in orders
    ]
    first, five = (sum(score.hit[k] for score in scores) for k in (1, 5))
    assert (first, five) == (1.0, 2.0)


def test_macro_f1_counts_every_class_the_same():
    assert macro_f1(["a", "a", "a", None], ["a", "a", "b", "b"]) == pytest.approx(0.4)
    assert macro_f1(["a", "b"], ["a", "b"]) == 1.0
    assert math.isnan(macro_f1([], []))
    with pytest.raises(ValueError, match="answers for"):
        macro_f1(["a"], [])


@pytest.mark.parametrize(("services", "once", "twice"), [(19, 0.50, 0.15), (27, 0.39, 0.08)])
def test_guessing_reaches_published_localization_scores_often(services: int, once: float, twice: float):
    names = [f"s{number}" for number in range(services)]
    chance = random_floor([{"s1"}], names).hit[1]
    none, one = (1 - chance) ** 13, 13 * chance * (1 - chance) ** 12
    assert 1 - none == pytest.approx(once, abs=0.01)
    assert 1 - none - one == pytest.approx(twice, abs=0.01)
