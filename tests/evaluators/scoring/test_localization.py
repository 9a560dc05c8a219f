"""Scores of rankings."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from faultset.evaluators.scoring.diagnosis import best_constant, macro_f1
from faultset.evaluators.scoring.localization import (
    canonicalise,
    classify_answer,
    dependents,
    expected_of_first,
    find_leaders,
    hops,
    lift,
    metric_matches,
    random_floor,
    score_metrics,
    score_ranking,
    score_set,
    tied_blocks,
)


def ranked(*names: str) -> dict[str, float]:
    return {name: float(len(names) - i) for i, name in enumerate(names)}


def test_three_definitions_of_accuracy_part_for_several_causes():
    score = score_ranking(ranked("a", "c", "b"), [{"a"}, {"b"}], ["a", "b", "c"])
    assert [score.hit(k) for k in (1, 2, 3)] == [1, 1, 1]
    assert [score.ac(k) for k in (1, 2, 3)] == [1, 0.5, 1]
    assert [score.recall(k) for k in (1, 2, 3)] == [0.5, 0.5, 1]


def test_averages_over_cases_count_a_cause_that_never_appears():
    cases = [
        (ranked("cart", "pay", "db", "web"), "pay"),
        (ranked("db", "web", "cart", "pay"), "db"),
        (ranked("web", "cart", "db", "pay"), "auth"),
    ]
    scores = [score_ranking(r, [{v}], ["cart", "pay", "db", "web"]) for r, v in cases]
    means = [np.mean([s.ac(k) for s in scores]) for k in (1, 2, 3)]
    assert np.allclose(means, [1 / 3, 2 / 3, 2 / 3])
    assert math.isclose(float(np.mean(means)), 5 / 9)
    ranks = [s.reciprocal_rank for s in scores]
    assert np.mean(ranks) == 0.5
    assert np.mean([rank for rank in ranks if rank]) == 0.75  # without the third case


def test_ties_score_their_expected_value():
    scores = {"a": 0.9, "b": 0.5, "c": 0.5, "d": 0.5, "e": 0.1}
    score = score_ranking(scores, [{"c"}], list(scores))
    assert np.allclose([score.hit(k) for k in (1, 2, 3, 4)], [0, 1 / 3, 2 / 3, 1])
    assert math.isclose(score.reciprocal_rank, 13 / 36)
    assert math.isclose(score.expected_rank, 3.0)


def test_the_alphabet_does_not_matter_when_all_scores_are_equal():
    flat = dict.fromkeys("abcdefghij", 0.0)
    first, last = (score_ranking(flat, [{name}], list(flat)) for name in "aj")
    assert (first.ac(1), first.hit(3), first.expected_rank) == (last.ac(1), last.hit(3), last.expected_rank)


def test_services_left_out_share_the_last_place():
    candidates = list("abcde")
    score = score_ranking({"a": 1.0}, [{"c"}], candidates)
    assert np.allclose([score.hit(k) for k in (1, 2, 3, 5)], [0, 1 / 4, 2 / 4, 1])
    assert math.isclose(score.reciprocal_rank, (1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 4)
    assert tied_blocks({"a": 1.0, "b": math.nan, "x": 9.0}, candidates) == [{"a"}, {"b", "c", "d", "e"}]


def test_expected_values_equal_an_enumeration_of_all_orders():
    scores = {"a": 2.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0, "f": 0.0}
    causes = [{"b", "f"}, {"d"}]
    score = score_ranking(scores, causes, list(scores))
    orders = [["a", *middle, "f"] for middle in itertools.permutations("bcde")]
    anything = {"b", "f", "d"}
    for k in (1, 2, 3, 4, 5, 6):
        score = score_ranking(scores, causes, list(scores))
        hits = [bool(anything & set(order[:k])) for order in orders]
        counts = [sum(bool(c & set(order[:k])) for c in causes) for order in orders]
        assert math.isclose(score.hit(k), np.mean(hits))
        assert math.isclose(score.ac(k), np.mean(counts) / min(k, 2))
    ranks = [min(order.index(name) for name in anything) + 1 for order in orders]
    assert math.isclose(score.reciprocal_rank, np.mean([1 / rank for rank in ranks]))
    assert math.isclose(score.expected_rank, np.mean(ranks))


def test_an_empty_answer_and_a_failure_are_misses_not_ties():
    candidates = list("abcde")
    for score in (score_ranking({}, [{"a"}], candidates), score_ranking({"x": 1.0}, [{"a"}], candidates)):
        assert score.ac(5) == score.avg5 == score.reciprocal_rank == 0.0
        assert score.expected_rank == 5.0


@pytest.mark.parametrize("size", [5, 8, 10, 19])
def test_the_random_floor_has_a_closed_form(size: int):
    candidates = [f"service-{i}" for i in range(size)]
    floor = random_floor([{"service-3"}], candidates)
    assert math.isclose(floor.avg5, 3 / size)
    assert all(math.isclose(floor.ac(k), k / size) for k in (1, 3, 5))
    assert math.isclose(floor.reciprocal_rank, sum(1 / i for i in range(1, size + 1)) / size)


def test_the_floor_of_ten_services_and_the_lift_over_it():
    floor = random_floor([{"s3"}], [f"s{i}" for i in range(10)])
    assert round(floor.reciprocal_rank, 4) == 0.2929
    assert math.isclose(lift(0.5, 0.3), 2 / 7)
    assert math.isnan(lift(1.0, 1.0))


def test_any_accepted_name_finds_a_cause():
    score = score_ranking(ranked("store", "web"), [{"geo", "store"}], ["geo", "store", "web"])
    assert score.ac(1) == 1.0


def test_expected_of_first_falls_back_when_nothing_is_ranked():
    assert expected_of_first([frozenset("ab")], {"z"}, float, missing=7.0) == 7.0


def test_set_answers():
    score = score_set({"a", "b"}, {"b", "c"})
    assert (score.exact, score.jaccard, score.f1) == (False, 1 / 3, 0.5)
    assert math.isnan(score_set(set(), set()).f1)


def test_an_episode_without_cause_is_refused():
    with pytest.raises(ValueError, match="without a root cause"):
        score_ranking({"a": 1.0}, [], ["a"])


def test_the_best_constant_pair_is_the_most_frequent_one_of_the_training_labels():
    labels = [("V", "mis")] * 3 + [("A", "mis")] * 2 + [("A", "auth")] * 2
    assert best_constant(labels) == ("V", "mis")
    assert best_constant([]) is None


CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


def test_what_is_tied_in_first_place_is_the_answer_as_a_set():
    candidates = ["a", "b", "c", "d"]
    assert find_leaders({"a": 1.0, "b": 1.0, "c": 0.5}, candidates) == {"a", "b"}
    assert find_leaders({}, candidates) == frozenset()
    causes = [frozenset({"geo", "mongodb-geo"}), frozenset({"rate"})]
    right = canonicalise(frozenset().union(*causes), causes)
    assert score_set(canonicalise({"mongodb-geo", "rate"}, causes), right).exact
    assert not score_set(canonicalise({"geo"}, causes), right).exact


def test_the_hit_that_comes_first_is_what_is_retrieved_and_then_ranked_first():
    orders = [["b", "a", "c", "d", "e", "f"], ["a", "b", "c", "d", "e", "f"], ["f", "e", "d", "c", "b", "a"]]
    scores = [
        score_ranking({name: -float(i) for i, name in enumerate(order)}, [{"a"}], list("abcdef")) for order in orders
    ]
    first, five = (sum(score.hit(k) for score in scores) for k in (1, 5))
    assert (first, five) == (1.0, 2.0)


@pytest.mark.parametrize(("services", "once", "twice"), [(19, 0.50, 0.15), (27, 0.39, 0.08)])
def test_guessing_reaches_published_localization_scores_often(services: int, once: float, twice: float):
    names = [f"s{number}" for number in range(services)]
    chance = random_floor([{"s1"}], names).hit(1)
    none, one = (1 - chance) ** 13, 13 * chance * (1 - chance) ** 12
    assert 1 - none == pytest.approx(once, abs=0.01)
    assert 1 - none - one == pytest.approx(twice, abs=0.01)


def test_metrics_are_ranked_with_their_service():
    ranked = [("cart", "cpu", 5.0), ("db", "io_time_seconds_rate", 4.0), ("cart", "mem", 1.0)]
    score = score_metrics(ranked, [("db", "io_*")])
    assert (score.ac(1), score.ac(3), score.reciprocal_rank) == (0.0, 1.0, 0.5)
    assert score_metrics(ranked, [("db", "cpu")]).ac(5) == 0.0
    assert score_metrics([], [("db", "cpu")]).reciprocal_rank == 0.0
    several = score_metrics(ranked, [("cart", "cpu"), ("cart", "mem")])
    assert (several.ac(1), several.ac(3)) == (1.0, 1.0)


def test_a_derived_metric_stands_for_what_it_was_made_of():
    assert metric_matches("http_server_request_duration_seconds_mean", "http_server_request_duration_seconds")
    assert metric_matches('cpu_seconds_total{mode="user"}', "cpu_seconds_total")
    assert not metric_matches("cpu_seconds_total", "memory")


def test_an_answer_is_a_cause_a_symptom_or_unrelated():
    assert dependents(CALLS, {"db"}) == {"cart", "web"}
    assert classify_answer({"db"}, {"db"}, CALLS)["hit"] == 1.0
    assert classify_answer({"web"}, {"db"}, CALLS)["symptom"] == 1.0
    assert classify_answer({"pay"}, {"db"}, CALLS)["unrelated"] == 1.0
    assert classify_answer(set(), {"db"}, CALLS)["none"] == 1.0
    tied = classify_answer({"db", "cart", "pay", "mail"}, {"db"}, CALLS)
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


def test_macro_f1_counts_every_class_the_same():
    assert macro_f1(["a", "a", "a", None], [{"a"}, {"a"}, {"b"}, {"b"}]) == pytest.approx(0.4)
    assert macro_f1(["a", "b"], [{"a"}, {"b"}]) == 1.0
    assert math.isnan(macro_f1([], []))
    with pytest.raises(ValueError, match="answers for"):
        macro_f1(["a"], [])


def test_one_of_several_classes_is_found_and_the_others_are_missed():
    assert macro_f1(["a", "b"], [{"a", "b"}, {"b"}]) == pytest.approx((1.0 + 2 / 3) / 2)
    assert macro_f1(["c"], [{"a", "b"}]) == 0.0
