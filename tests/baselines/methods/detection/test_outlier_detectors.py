"""Outlier detectors on an example."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.detection.outlier_detectors import PCADetector, compute_nearest_distances, subsequences


def test_a_larger_subspace_leaves_a_smaller_residual(example, faulty) -> None:
    view = example.view(faulty)
    assert not np.array_equal(PCADetector(variance=0.5).detect(view).scores, PCADetector().detect(view).scores)


RNG = np.random.default_rng(0)


def test_the_profile_is_that_of_brute_force() -> None:
    series = RNG.normal(size=(50, 3))
    pieces = subsequences(series, 6)
    result = compute_nearest_distances(pieces[:, 30:], pieces[:, :25])
    for column in range(3):
        cut = [series[start : start + 6, column] for start in range(45)]
        slow = [min(np.linalg.norm(cut[start] - other) for other in cut[:25]) for start in range(30, 45)]
        assert result[column] == pytest.approx(slow)


def test_a_subsequence_does_not_match_itself_or_its_neighbours() -> None:
    series = np.cumsum(RNG.normal(size=(30, 1)), axis=0)
    pieces = subsequences(series, 5)
    result = compute_nearest_distances(pieces, pieces, min_distance=3)[0]
    cut = [series[start : start + 5, 0] for start in range(26)]
    slow = [min(np.linalg.norm(cut[i] - cut[j]) for j in range(26) if abs(i - j) >= 3) for i in range(26)]
    assert result == pytest.approx(slow)


def test_the_discord_is_where_the_rhythm_breaks() -> None:
    wave = np.sin(np.arange(120) * 2 * np.pi / 12)
    wave[90:96] = wave[90]
    pieces = subsequences(wave[:, None], 8)
    result = compute_nearest_distances(pieces[:, 60:], pieces[:, :53])[0]
    assert 83 <= 60 + int(result.argmax()) <= 95
    assert result[:20].max() < 1e-6


def test_a_shift_of_level_is_not_normalised_away() -> None:
    level = np.repeat([0.0, 5.0], 40)[:, None] + 0.1 * RNG.normal(size=(80, 1))
    pieces = subsequences(level, 8)
    result = compute_nearest_distances(pieces[:, 33:], pieces[:, :33])[0]
    assert result[-1] == pytest.approx(5 * np.sqrt(8), rel=0.1)
