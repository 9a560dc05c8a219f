"""Thresholds, affiliation, propagation, metric rankings, sets, agents' rules: against vectors computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.core.errors import UsageError
from faultset.evaluators.scoring.affiliation import affiliation
from faultset.evaluators.scoring.agents import (
    aiopslab_localization,
    pass_all,
    pass_at,
    tokens_billed,
    tokens_counted_once,
)
from faultset.evaluators.scoring.alarms import events
from faultset.evaluators.scoring.confusion import Confusion
from faultset.evaluators.scoring.diagnosis import macro_f1, score_pairs
from faultset.evaluators.scoring.localization import canonical, leading, random_floor, score_ranking, score_set
from faultset.evaluators.scoring.metric_rankings import metric_matches, score_metrics
from faultset.evaluators.scoring.points import point_scores
from faultset.evaluators.scoring.propagation import dependents, hops, kinds_of_answer
from faultset.evaluators.scoring.thresholds import Healthy, TrainBudget, TrainQuantile, chosen_policies

TRUTH = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0])
FLAGS = np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0])
CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


def test_a_constant_yes_equals_the_best_agent_of_a_table_by_plain_accuracy_only():
    always = Confusion(tp=13, fp=2, fn=0, tn=0)
    careful = Confusion(tp=9, fp=0, fn=4, tn=2)
    hasty = Confusion(tp=10, fp=2, fn=3, tn=0)
    assert (always.balanced_accuracy, always.mcc) == (0.5, 0.0)
    assert (round(careful.balanced_accuracy, 3), round(careful.mcc, 3)) == (0.846, 0.480)
    assert (round(hasty.balanced_accuracy, 3), round(hasty.mcc, 3)) == (0.385, -0.196)
    assert round(Confusion(tp=31, fp=3, fn=0, tn=0).accuracy, 3) == 0.912


def test_point_adjustment_makes_a_lucky_sample_an_event():
    assert round(point_scores(TRUTH, FLAGS)[2], 4) == 0.2857
    adjusted = FLAGS.copy()
    for start, end in events(TRUTH):
        if FLAGS[start:end].any():
            adjusted[start:end] = 1
    assert round(point_scores(TRUTH, adjusted)[2], 3) == 0.8


def test_random_flags_look_good_after_point_adjustment():
    rng = np.random.default_rng(0)
    truth = np.zeros(1000, dtype=bool)
    truth[400:460] = True
    plain, adjusted = [], []
    for _ in range(400):
        flags = rng.random(1000) < 0.05
        plain.append(np.nan_to_num(point_scores(truth, flags)[2]))
        adjusted.append(np.nan_to_num(point_scores(truth, flags | (truth & flags[400:460].any()))[2]))
    assert 0.04 < np.mean(plain) < 0.07
    found = 1 - 0.95**60
    once_found = 2 * 60 / (2 * 60 + 0.05 * 940)
    assert (round(found, 3), round(found * once_found, 3)) == (0.954, 0.685)
    assert np.mean(adjusted) == pytest.approx(found * once_found, abs=0.015)


@pytest.mark.parametrize(
    ("found", "precision", "recall"),
    [([(5, 6), (9, 11)], 0.4583, 0.8958), ([(0, 12)], 0.5556, 1.0), ([(7, 8)], 0.5833, 0.6719)],
)
def test_affiliation_by_hand(found: list[tuple[int, int]], precision: float, recall: float):
    assert np.allclose(affiliation([(3, 7)], found, 12), (precision, recall), atol=1e-3)


def test_affiliation_cuts_time_at_the_middle_between_events():
    near, missed = affiliation([(2, 4), (8, 10)], [(2, 4)], 12)
    assert near == 1.0
    assert missed == 0.5
    assert math.isnan(affiliation([(2, 4)], [], 12)[0])
    assert math.isnan(affiliation([], [(2, 4)], 12)[1])


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


def test_parts_and_joint_of_a_published_example():
    level, kind = [1, 1, 0, 1], [1, 0, 0, 1]
    said = [("V" if a else "x", "m" if b else "x") for a, b in zip(level, kind, strict=True)]
    score = score_pairs(said, [("V", "m")] * 4)
    assert (score.parts, score.joint) == (0.625, 0.5)


@pytest.mark.parametrize(("right", "share"), [(9, 0.4091), (2, 0.0909), (10, 0.4545), (8, 0.3636)])
def test_a_published_table_counts_parts_of_eleven_problems(right: int, share: float):
    parts = [number < right for number in range(22)]
    said = [("V" if level else "x", "m" if kind else "x") for level, kind in zip(parts[::2], parts[1::2], strict=True)]
    score = score_pairs(said, [("V", "m")] * 11)
    assert round(score.parts, 4) == share
    assert score.joint == (right // 2) / 11


@pytest.mark.parametrize(("services", "once", "twice"), [(19, 0.50, 0.15), (27, 0.39, 0.08)])
def test_guessing_reaches_published_localization_scores_often(services: int, once: float, twice: float):
    names = [f"s{number}" for number in range(services)]
    chance = random_floor([{"s1"}], names).hit[1]
    none, one = (1 - chance) ** 13, 13 * chance * (1 - chance) ** 12
    assert 1 - none == pytest.approx(once, abs=0.01)
    assert 1 - none - one == pytest.approx(twice, abs=0.01)


def test_aiopslab_compares_names_as_they_stand():
    truth = "user-service"
    assert aiopslab_localization([truth], truth) == aiopslab_localization(truth, truth) == (100.0, True)
    assert aiopslab_localization([truth, "x"], truth) == aiopslab_localization([truth, truth], truth) == (50.0, False)
    assert aiopslab_localization(["User-Service"], truth) == aiopslab_localization([], truth) == (0.0, False)


def test_an_unordered_list_ranks_as_a_tied_block():
    percent, _ = aiopslab_localization(["a", "b"], "a")
    tied = score_ranking({"a": 1.0, "b": 1.0}, [{"a"}], ["a", "b", "c"])
    assert tied.ac[1] == percent / 100


def test_tokens_are_billed_with_the_whole_history():
    turns = [("user", 100), ("assistant", 50), ("env", 200), ("assistant", 50), ("env", 300), ("assistant", 20)]
    assert tokens_counted_once(turns) == 500
    assert tokens_billed(turns) == 100 + 350 + 700


def test_trials_at_least_one_and_all():
    assert [pass_at(5, 2, k) for k in (1, 2, 3)] == pytest.approx([0.4, 0.7, 0.9])
    assert [pass_all(5, 2, k) for k in (1, 2, 3)] == pytest.approx([0.4, 0.1, 0.0])
    assert math.isnan(pass_at(2, 1, 3))
    assert math.isnan(pass_all(2, 1, 3))
