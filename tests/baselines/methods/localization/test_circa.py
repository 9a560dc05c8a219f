"""CIRCA: residuals, the causal graph, and the adjustment by descendants."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.circa import (
    compute_effect_scores,
    measured_parents,
    regression_scores,
    signal_parents,
)
from tests.baselines.metric_series import SERVICES, World, ask, chain, healthy_series, with_delays


def test_the_changed_series_has_the_largest_residual() -> None:
    rng = np.random.default_rng(0)
    before, after = chain(rng, 60), chain(rng, 60, shift=20.0)
    mean, sd = before.mean(axis=0), before.std(axis=0)
    before, after = (before - mean) / sd, (after - mean) / sd
    alone = [regression_scores(before[:, [n]], after[:, [n]], before[:, :0], after[:, :0])[0] for n in range(4)]
    inputs = [
        regression_scores(before[:, [n]], after[:, [n]], before[:, [n - 1]], after[:, [n - 1]])[0] for n in range(1, 4)
    ]
    assert min(alone[2:]) > 6
    assert inputs[0] > 10
    assert max(inputs[1:]) < 6
    assert np.argmax(inputs) == 0


def test_without_causes_the_residual_is_n_sigma() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=(50, 3)), rng.normal(size=(9, 3)) - 8
    before = (before - before.mean(axis=0)) / before.std(axis=0)
    result = regression_scores(before, after, before[:, :0], after[:, :0])
    assert result == pytest.approx(np.abs(after).max(axis=0))


def test_regression_falls_back_to_no_causes_where_samples_are_few() -> None:
    rng = np.random.default_rng(2)
    before, after = rng.normal(size=(4, 1)), np.full((2, 1), 7.0)
    before -= before.mean()
    many = rng.normal(size=(4, 3))
    result = regression_scores(before, after, many, many[:2])
    assert result == pytest.approx(regression_scores(before, after, many[:, :0], many[:2, :0]))


def test_architecture_draws_traffic_down_and_trouble_up() -> None:
    parents = signal_parents(("front", "cart", "db"), [("front", "cart"), ("cart", "db"), ("db", "front")], "front")
    assert ("front", "traffic") in parents["cart", "traffic"]
    assert ("db", "errors") in parents["cart", "errors"]
    assert ("cart", "latency") not in parents["db", "latency"]
    assert set(parents["db", "saturation"]) == {("db", "traffic")}
    # db -> front closes a cycle.
    assert ("db", "traffic") not in parents["front", "traffic"]


def test_what_nothing_measures_is_looked_through() -> None:
    parents = signal_parents(("front", "cart", "db"), [("front", "cart"), ("cart", "db")], "front")
    measured = {("front", "latency"), ("db", "latency")}
    assert measured_parents(parents, measured)["front", "latency"] == (("db", "latency"),)


def test_anomalous_nodes_are_lifted_by_their_largest_effect_also_through_normal_ones() -> None:
    parents = {("b", "x"): (("a", "x"),), ("c", "x"): (("b", "x"),), ("d", "x"): (("c", "x"),)}
    scores = {("a", "x"): 5.0, ("b", "x"): 1.0, ("c", "x"): 7.0, ("d", "x"): 4.0}
    assert compute_effect_scores(scores, parents) == {
        ("a", "x"): 7.0,
        ("b", "x"): 0.0,
        ("c", "x"): 4.0,
        ("d", "x"): 0.0,
    }


def test_circa_blames_the_callee_whose_delay_its_callers_inherit(world: World) -> None:
    rng = np.random.default_rng(3)
    series = healthy_series(3)
    values = {service: 5 + rng.normal(0, 0.5, 120) for service in SERVICES}
    values["cache"] = values["cache"] + np.where(np.arange(120) >= 70, 60 + rng.normal(0, 10, 120), 0.0)
    # The front end has the smallest spread, so its deviation seems largest.
    values["front"] = 5 + rng.normal(0, 0.01, 120)
    series |= with_delays(values)
    ranking = ask("circa", world(series))
    assert ranking.ordered[0] == "cache"
    assert max(ranking.metrics, key=lambda key: ranking.metrics[key]) == ("cache", "delay")
