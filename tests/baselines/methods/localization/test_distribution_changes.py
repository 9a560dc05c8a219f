"""BARO's change point: its position, and independence of later data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from faultset.baselines import registry
from faultset.baselines.contract import Detection
from faultset.baselines.methods.localization.distribution_changes import run_lengths
from tests.baselines.metric_series import SECOND, World, healthy_series


def test_baro_finds_its_own_change_point_where_errors_and_delays_jump(world: World) -> None:
    series = healthy_series()
    for service in ("db", "cart", "user", "front"):
        series[service, "faults"] = series[service, "faults"] + np.where(np.arange(120) >= 70, 3.0, 0.0)
        series[service, "delay"] = series[service, "delay"] + np.where(np.arange(120) >= 70, 30.0, 0.0)
    series["db", "heap"] = series["db", "heap"] - np.where(np.arange(120) >= 70, 90.0, 0.0)
    view = world(series)
    detector: Any = registry.get_baseline("baro-change-point").build()
    detection: Detection = detector.detect(view)
    assert detection.alarm_ns is not None
    assert 70 * SECOND < detection.alarm_ns - view.window[0] <= 74 * SECOND
    since_s = (detection.alarm_ns - view.window[0]) / SECOND - 70
    assert {item.detail for item in detection.evidence} == {f"new regime since {since_s:g} s"}


def test_the_scale_of_the_future_does_not_move_the_change_point(world: World) -> None:
    detector: Any = registry.get_baseline("baro-change-point").build()
    series = healthy_series(1)
    before = detector.detect(world(series))
    for key in series:
        series[key] = np.where(np.arange(120) >= 100, 1e6, series[key])
    after = detector.detect(world(series))
    expected = int((before.times_ns <= world(series).window[0] + 100 * SECOND).sum())
    np.testing.assert_allclose(before.scores[:expected], after.scores[:expected])
    assert after.alarm_ns is not None


# The stubs are too narrow.
stats: Any = scipy_stats


def direct_run_lengths(samples: np.ndarray, hazard: float) -> np.ndarray:
    """Compute the recursion with one multivariate t and a new scatter matrix per run."""
    count, dims = samples.shape
    result = np.zeros((count, count + 1))
    weight = {0: 1.0}
    for row in range(count):
        grown = {}
        for length, probability in weight.items():
            run = samples[row - length : row]
            kappa = 1.0 + length
            center = run.sum(axis=0) / kappa
            scatter = np.eye(dims) + run.T @ run - kappa * np.outer(center, center)
            freedom = 2.0 + length
            shape = scatter * (kappa + 1) / (kappa * freedom)
            grown[length + 1] = probability * stats.multivariate_t.pdf(samples[row], center, shape, df=freedom)
        total = sum(grown.values())
        weight = {0: hazard} | {length: (1 - hazard) * value / total for length, value in grown.items()}
        for length, value in weight.items():
            result[row, length] = value
    return result


def test_run_lengths_are_those_of_the_textbook_recursion() -> None:
    rng = np.random.default_rng(3)
    samples = np.vstack([rng.normal(0, 0.2, (15, 3)), rng.normal(1, 0.2, (10, 3))])
    result = run_lengths(samples, hazard=0.02)
    np.testing.assert_allclose(result.probability, direct_run_lengths(samples, 0.02), atol=1e-9)
    assert result.probability.sum(axis=1) == pytest.approx(1.0)


def test_a_change_of_level_is_dated_to_the_sample_and_nothing_before_it() -> None:
    rng = np.random.default_rng(4)
    samples = rng.normal(0, 0.2, (80, 5))
    samples[50:, :2] += 1.2
    runs = run_lengths(samples)
    assert (runs.compute_start_probability(40)[40:50] < 0.5).all()
    assert (runs.compute_start_probability(40)[52:] > 0.9).all()
    assert runs.probability[70].argmax() == 71 - 50


def test_what_comes_later_does_not_change_earlier_run_lengths() -> None:
    rng = np.random.default_rng(5)
    samples = rng.normal(0, 0.3, (40, 4))
    later = samples.copy()
    later[25:] = 100.0
    early, late = run_lengths(samples[:25]).probability, run_lengths(later).probability
    np.testing.assert_allclose(late[:25, :26], early)
    assert (late[:25, 26:] == 0).all()
