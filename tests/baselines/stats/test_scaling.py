"""Centre and spread of many columns at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.features.metric_alarms import CLIP, standardise_windows
from faultset.baselines.features.windows import Windows
from faultset.baselines.stats.scaling import (
    ABSENT_Z,
    MAD_TO_SD,
    bonferroni_sigmas,
    deviations,
    distinct,
    mean_and_sd,
    median_and_iqr,
    median_and_mad,
    quantiles,
    reference_limit,
    sustained,
    with_floor,
)


@pytest.fixture
def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    instance = rng.normal(50, 5, (37, 40))
    instance[rng.random(instance.shape) < 0.3] = np.nan
    instance[1:, 0] = np.nan
    instance[0, 0] = 3.0
    return instance


def test_quantiles_are_those_of_numpy_for_columns_with_gaps(values: np.ndarray) -> None:
    shares = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)
    np.testing.assert_allclose(quantiles(values, shares), np.nanquantile(values, shares, axis=0), rtol=1e-12)


def test_a_column_without_values_and_a_matrix_without_rows_have_no_quantiles() -> None:
    assert np.isnan(quantiles(np.full((5, 2), np.nan), (0.5,))).all()
    assert quantiles(np.empty((0, 3)), (0.5, 0.9)).shape == (2, 3)


def test_medians_and_spreads_leave_gaps_out(values: np.ndarray) -> None:
    median, iqr = median_and_iqr(values)
    np.testing.assert_allclose(median, np.nanmedian(values, axis=0))
    low, high = np.nanquantile(values, (0.25, 0.75), axis=0)
    np.testing.assert_allclose(iqr, with_floor(high - low, median))
    median, mad = median_and_mad(values)
    expected = MAD_TO_SD * np.nanmedian(np.abs(values - median), axis=0)
    np.testing.assert_allclose(mad, with_floor(expected, median))


def test_both_windows_are_measured_in_healthy_spreads_and_cut() -> None:
    windows = Windows(
        series=(("a", "x"), ("b", "y")),
        step_ns=1,
        reference=np.array([[9.0, 50.0], [11.0, 52.0]]),
        values=np.array([[13.0, np.nan], [1e6, np.nan]]),
        absent=np.array([[False, False], [False, True]]),
        times_ns=np.arange(2),
    )
    healthy, since = standardise_windows(windows)
    np.testing.assert_allclose(healthy, [[-1, -1], [1, 1]])
    assert since.tolist() == [[3, 0], [CLIP, ABSENT_Z]]
    assert standardise_windows(windows, stopped=False)[1].tolist() == [[3, 0], [CLIP, 0]]


PATTERN = np.array([0, 2, 1, -1, 0, 2, 1, -1], dtype=float)
CALM = np.array([0, 0, 1, -1, 0, 0, 1, -1], dtype=float)
REFERENCE = np.stack([10 + PATTERN, 50 + CALM, 20 + PATTERN, 100 + PATTERN], axis=1)
VALUES = np.array([(10, 30, 31, 30), (50, 50, 51, 49), (21, 21, 40, 41), (100, 10, 9, 10)], dtype=float).T
THERE = np.zeros(VALUES.shape, dtype=bool)


def test_two_sided_n_sigma_finds_the_series_that_drops() -> None:
    z = deviations(VALUES, *mean_and_sd(REFERENCE), THERE)
    # The signed maximum of the published code misses decreases.
    assert z.max(axis=0) == pytest.approx([18.3358, 1.4142, 18.3358, -0.4472], abs=1e-4)
    assert np.abs(z).max(axis=0)[3] == pytest.approx(81.8401, abs=1e-4)


def test_two_sided_baro_finds_the_series_that_drops() -> None:
    z = np.abs(deviations(VALUES, *median_and_iqr(REFERENCE), THERE)).max(axis=0)
    assert z[[0, 2, 3]] == pytest.approx([13.6667, 13.6667, 61.0], abs=1e-4)


def test_a_spike_is_not_sustained() -> None:
    z = np.array([[9.0, 9], [0, -9], [9, 9], [9, 9]])
    np.testing.assert_array_equal(sustained(z, 3), [[0, 0], [0, 0], [0, 9], [0, 9]])


def test_a_healthy_score_passes_the_limit_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(0)
    passed = [rng.normal() > reference_limit(rng.normal(size=48), level=0.05) for _ in range(4000)]
    assert np.mean(passed) < 0.035
    limits = [reference_limit(rng.normal(size=48)) for _ in range(200)]
    assert 2.5 < np.median(limits) < 3.6


def test_the_limit_is_never_below_what_the_reference_reached() -> None:
    scores = np.array([0.0] * 100 + [9.0])
    assert reference_limit(scores) >= 9.0
    assert reference_limit(scores, minimum=20.0) == 20.0


def test_bonferroni_keeps_three_sigma_for_one_series() -> None:
    assert bonferroni_sigmas(1) == pytest.approx(3.0, abs=1e-3)
    assert bonferroni_sigmas(100) == pytest.approx(stats.norm.isf(0.0027 / 200))
    assert bonferroni_sigmas(100, samples=100_000) == pytest.approx(bonferroni_sigmas(100), abs=1e-3)
    assert bonferroni_sigmas(100, samples=40) > bonferroni_sigmas(100) + 0.5


@pytest.mark.parametrize("rows", [0, 1, 2, 500, 20_000])
@pytest.mark.parametrize("width", [1, 7, 3_000, 10**6, 2**62])
def test_values_first_rows_and_codes_are_those_of_numpy(rows: int, width: int) -> None:
    rng = np.random.default_rng(rows)
    numbers = rng.choice(rng.integers(-width, width, 300), rows)
    values, first, code = np.unique(numbers, return_index=True, return_inverse=True)
    result = distinct(numbers)
    np.testing.assert_array_equal(result.values, values)
    np.testing.assert_array_equal(result.first, first)
    np.testing.assert_array_equal(result.code, code)
    assert {part.dtype for part in result} == {np.dtype(np.int64)}
