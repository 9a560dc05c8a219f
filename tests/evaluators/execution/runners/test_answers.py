"""Checks of answers: what is kept of them, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from faultset.baselines.api.contract import Ranking
from faultset.evaluators.execution.runners.answers import (
    MAX_LEFT_OUT,
    MAX_METRICS,
    InvalidAnswer,
    add_skipped_series,
    check_ranking,
)


def stored(answer: Ranking) -> dict[str, Any]:
    return json.loads(check_ranking(answer, ("a", "b")).text)


def test_pods_and_metrics_are_stored_best_first() -> None:
    text = stored(Ranking(scores={"a": 1.0}, pods={"a-1": 1, "a-2": 3.0}, metrics={("a", "x"): 1.0, ("a", "y"): 2.0}))
    assert list(text["pods"].items()) == [("a-2", 3.0), ("a-1", 1.0)]
    assert text["metrics"] == [["a", "y", 2.0], ["a", "x", 1.0]]
    assert "pods" not in stored(Ranking(scores={"a": 1.0}))


def test_only_the_best_metrics_are_stored_but_all_are_counted() -> None:
    many = {("a", f"m{number:03}"): float(number) for number in range(MAX_METRICS + 5)}
    text = stored(Ranking(scores={"a": 1.0}, metrics=many))
    assert (len(text["metrics"]), text["metrics_named"]) == (MAX_METRICS, MAX_METRICS + 5)
    assert text["metrics"][0][1] == f"m{MAX_METRICS + 4:03}"


@pytest.mark.parametrize("pods", [["a-1"], {"a-1": "high"}, {"a-1": float("nan")}])
def test_pods_without_numbers_are_no_answer(pods: Any) -> None:
    with pytest.raises(InvalidAnswer, match="pod"):
        check_ranking(Ranking(scores={"a": 1.0}, pods=pods), ("a", "b"))


def test_a_ranking_keeps_the_pods_and_metrics_of_services_that_it_names() -> None:
    scores = {"a": 2.0, "b": 0.0}
    pods = {("a", "a-1"): 2.0, ("a", "a-2"): 0.0, ("b", "b-1"): 1.0, ("a", "a-3"): float("inf")}
    found = Ranking.of(scores, ("a", "b"), metrics={("a", "x"): 1.0, ("b", "x"): 1.0}, pods=pods)
    assert found.pods == {"a-1": 2.0}
    assert found.metrics == {("a", "x"): 1.0}
    assert Ranking.of({}, ("a", "b"), pods=pods).pods == {}


def test_an_answer_names_the_first_series_that_its_method_left_out_and_counts_all() -> None:
    answer = check_ranking(Ranking(scores={"a": 1.0}), ("a", "b"))
    assert add_skipped_series(answer, set()) == answer
    series = {("a", f"setting_{number:03}") for number in range(MAX_LEFT_OUT + 5)}
    text = json.loads(add_skipped_series(answer, series).text)
    assert text["left_out"][0] == ["a", "setting_000"]
    assert (len(text["left_out"]), text["left_out_count"]) == (MAX_LEFT_OUT, MAX_LEFT_OUT + 5)
