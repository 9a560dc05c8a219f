"""The published scorers against what their code gives, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faultset.baselines.methods.rules.metric_rules import Baro, MaxZ, NSigma, published_scores
from tests.baselines.metric_series import World, ask, dropped, healthy_series

NAN = np.nan
REFERENCE = np.array(
    [[1.0, 5.0, 0.0, 2.0, 7.0], [3.0, 5.0, 0.0, 4.0, 7.0], [5.0, 5.0, 0.0, 6.0, 7.0], [7.0, 5.0, 9.0, 8.0, 7.0]]
)
VALUES = np.array([[8.0, 5.0, 4.0, 1.0, 7.0], [12.0, 9.0, 1.0, 0.0, 7.0]])


def test_n_sigma_divides_by_the_population_standard_deviation():
    scores = published_scores(REFERENCE, VALUES, robust=False)
    assert scores[0] == pytest.approx((12 - 4) / np.std([1, 3, 5, 7]))


def test_baro_divides_by_the_interquartile_range():
    scores = published_scores(REFERENCE, VALUES, robust=True)
    assert scores[0] == pytest.approx((12 - 4) / (5.5 - 2.5))


def test_a_range_of_nothing_counts_as_one():
    reference = np.array([[0.0], [0.0], [0.0], [0.0], [9.0]])
    assert published_scores(reference, np.array([[4.0], [1.0]]), robust=True).tolist() == [4.0]


@pytest.mark.parametrize("robust", [False, True])
def test_series_that_are_constant_in_either_window_or_only_fall_score_nothing(robust: bool):
    scores = published_scores(REFERENCE, VALUES, robust=robust)
    assert scores[[1, 3, 4]].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("robust", [False, True])
def test_gaps_are_no_samples(robust: bool):
    with_gaps = np.vstack([VALUES, np.full((1, VALUES.shape[1]), NAN)])
    plain = published_scores(REFERENCE, VALUES, robust=robust)
    assert published_scores(REFERENCE, with_gaps, robust=robust).tolist() == plain.tolist()


def test_the_preprocessing_can_be_changed_one_part_at_a_time():
    def scores(**changed: Any) -> list[float]:
        return published_scores(REFERENCE, VALUES, robust=True, **changed).tolist()

    usual, falls, constant = scores(), scores(sign="both"), scores(keep_constant=True)
    assert [a == b for a, b in zip(usual, falls, strict=True)] == [True, True, True, False, True]
    assert falls[3] == pytest.approx((5 - 0) / (6.5 - 3.5))
    assert [a == b for a, b in zip(usual, constant, strict=True)] == [True, False, True, True, True]
    assert constant[1] == 4.0


SECOND = 1_000_000_000


@pytest.mark.parametrize("ranker", [NSigma, Baro, MaxZ])
def test_deviation_rankers_find_the_target_of_the_example(ranker, example, faulty) -> None:
    label = example.label(faulty)
    ranking = ranker().localize(example.view(faulty), int(label.inject_start_ns) + 4 * SECOND)
    assert ranking.ordered[0] == label.targets[0]


@pytest.mark.parametrize("name", ["nsigma", "baro"])
def test_published_scorers_find_what_rises_and_not_what_falls(name: str, world: World) -> None:
    assert ask(name, world(dropped())).ordered[0] != "user"
    series = healthy_series()
    series["user", "heap"] = series["user", "heap"] + np.where(np.arange(120) >= 70, 40.0, 0.0)
    assert ask(name, world(series)).ordered[0] == "user"
