"""Causes, symptoms and distances in a call graph."""

from __future__ import annotations

import math

from faultset.evaluators.scoring.rankings import dependents, hops, kinds_of_answer

CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


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
