"""Run lengths against the recursion of the textbook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from faultset.baselines.stats.change_points import run_lengths

# Its stubs know fewer types than it takes.
stats: Any = scipy_stats


def direct_run_lengths(samples: np.ndarray, hazard: float) -> np.ndarray:
    """One multivariate t at a time, with scatter matrices summed up from scratch for every run."""
    count, dims = samples.shape
    found = np.zeros((count, count + 1))
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
            found[row, length] = value
    return found


def test_run_lengths_are_those_of_the_textbook_recursion() -> None:
    rng = np.random.default_rng(3)
    samples = np.vstack([rng.normal(0, 0.2, (15, 3)), rng.normal(1, 0.2, (10, 3))])
    found = run_lengths(samples, hazard=0.02)
    np.testing.assert_allclose(found.probability, direct_run_lengths(samples, 0.02), atol=1e-9)
    assert found.probability.sum(axis=1) == pytest.approx(1.0)


def test_a_change_of_level_is_dated_to_the_sample_and_nothing_before_it() -> None:
    rng = np.random.default_rng(4)
    samples = rng.normal(0, 0.2, (80, 5))
    samples[50:, :2] += 1.2
    runs = run_lengths(samples)
    assert (runs.begun_since(40)[40:50] < 0.5).all()
    assert (runs.begun_since(40)[52:] > 0.9).all()
    assert runs.most_likely[70] == 71 - 50


def test_what_comes_later_does_not_change_earlier_run_lengths() -> None:
    rng = np.random.default_rng(5)
    samples = rng.normal(0, 0.3, (40, 4))
    later = samples.copy()
    later[25:] = 100.0
    early, late = run_lengths(samples[:25]).probability, run_lengths(later).probability
    np.testing.assert_allclose(late[:25, :26], early)
    assert (late[:25, 26:] == 0).all()
