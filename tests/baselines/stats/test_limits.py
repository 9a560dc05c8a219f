"""Limits that healthy values stay below."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.stats.scaling import bonferroni_sigmas, reference_limit


def test_k_sigma_uses_the_limit_of_the_textbook() -> None:
    assert bonferroni_sigmas(100) == pytest.approx(4.20, abs=0.005)
    assert bonferroni_sigmas(1) == pytest.approx(3.0, abs=0.001)


def test_a_healthy_score_passes_the_limit_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(0)
    passed = [rng.normal() > reference_limit(rng.normal(size=48), level=0.05) for _ in range(4000)]
    assert np.mean(passed) < 0.035
    limits = [reference_limit(rng.normal(size=48)) for _ in range(200)]
    assert 2.5 < np.median(limits) < 3.6


def test_the_limit_is_never_below_what_the_reference_reached() -> None:
    scores = np.array([0.0] * 100 + [9.0])
    assert reference_limit(scores) >= 9.0
    assert reference_limit(scores, least=20.0) == 20.0


def test_bonferroni_keeps_three_sigma_for_one_series() -> None:
    assert bonferroni_sigmas(1) == pytest.approx(3.0, abs=1e-3)
    assert bonferroni_sigmas(100) == pytest.approx(stats.norm.isf(0.0027 / 200))
    assert bonferroni_sigmas(100, samples=100_000) == pytest.approx(bonferroni_sigmas(100), abs=1e-3)
    assert bonferroni_sigmas(100, samples=40) > bonferroni_sigmas(100) + 0.5
