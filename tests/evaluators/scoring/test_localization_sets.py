"""Localization: answers as sets, retrieval and guessing, against published values."""

from __future__ import annotations

import pytest

from faultset.evaluators.scoring.rankings import canonical, leading, random_floor, score_ranking, score_set

CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


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
    first, five = (sum(score.hit(k) for score in scores) for k in (1, 5))
    assert (first, five) == (1.0, 2.0)


@pytest.mark.parametrize(("services", "once", "twice"), [(19, 0.50, 0.15), (27, 0.39, 0.08)])
def test_guessing_reaches_published_localization_scores_often(services: int, once: float, twice: float):
    names = [f"s{number}" for number in range(services)]
    chance = random_floor([{"s1"}], names).hit(1)
    none, one = (1 - chance) ** 13, 13 * chance * (1 - chance) ** 12
    assert 1 - none == pytest.approx(once, abs=0.01)
    assert 1 - none - one == pytest.approx(twice, abs=0.01)
