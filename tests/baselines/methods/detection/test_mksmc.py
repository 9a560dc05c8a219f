"""MKSMC's score compared with closed forms and simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.methods.detection.mksmc import (
    MKSMC,
    Projection,
    out_of_fold_maximum,
    random_directions,
    shrinkage,
)

THREE_SIGMA = float(2 * stats.norm.sf(3))
REFERENCE = np.array([(12, 52), (8, 48), (11, 49), (9, 51)], dtype=float)
PROJECTIONS_POINTS = np.array([(12, 52), (12, 48), (10, 50), (10, 55)], dtype=float)
FOUR = np.array([(1, 0), (0, 1), (1, 1), (1, -1)]) / np.array([[1], [1], [2**0.5], [2**0.5]])


def score(directions: np.ndarray, shrink: float, points: np.ndarray = PROJECTIONS_POINTS) -> np.ndarray:
    model = Projection.fit(REFERENCE, directions, shrink=shrink)
    return model.score(model.standardise(points))[0]


def test_single_series_k_sigma_is_the_largest_z() -> None:
    model = Projection.fit(REFERENCE, FOUR, shrink=0.0)
    assert model.scale == pytest.approx([1.581139, 1.581139], abs=1e-6)
    z = np.abs(model.standardise(PROJECTIONS_POINTS)).max(axis=1)
    assert z == pytest.approx([1.264911, 1.264911, 0, 3.162278], abs=1e-6)


def test_four_directions_find_the_point_that_breaks_the_correlation() -> None:
    assert score(FOUR, 0.0) == pytest.approx([1.414214, 2.828427, 0, 3.535534], abs=1e-6)


def test_shrinkage_lowers_the_score_of_the_broken_correlation() -> None:
    assert score(FOUR, 0.1) == pytest.approx([1.441500, 2.637522, 0, 3.296902], abs=1e-6)


def test_a_thousand_directions_come_close_to_mahalanobis_from_below() -> None:
    result = score(random_directions(2, 1000, np.random.default_rng(0)), 0.1)
    assert result == pytest.approx([1.441500, 2.637519, 0, 3.756657], abs=1e-6)
    assert (result <= np.array([1.441500, 2.637522, 0, 3.757169]) + 1e-6).all()


def test_all_directions_together_are_mahalanobis() -> None:
    angles = np.linspace(0, np.pi, 20_001)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    inverse = np.linalg.inv(np.cov(REFERENCE.T, ddof=0))
    away = PROJECTIONS_POINTS - REFERENCE.mean(axis=0)
    mahalanobis = np.sqrt(np.einsum("ij,jk,ik->i", away, inverse, away))
    assert mahalanobis == pytest.approx([1.414214, 2.828427, 0, 3.952847], abs=1e-6)
    assert score(around, 0.0) == pytest.approx(mahalanobis, abs=1e-6)


def test_three_sigma_of_a_distance_grow_with_the_dimension() -> None:
    limits = np.sqrt(stats.chi2.isf(THREE_SIGMA, [1, 2, 5, 20, 50, 200]))
    assert limits == pytest.approx([3.00, 3.44, 4.27, 6.49, 9.07, 16.13], abs=0.005)
    reference = np.vstack([np.eye(5), -np.eye(5)]) * np.sqrt(5)
    model = Projection.fit(reference, random_directions(5, 4000, np.random.default_rng(0)), shrink=0.0)
    assert 3.8 < model.simulate(200, np.random.default_rng(1)).limit(3) < 4.4


@pytest.mark.parametrize("seed", range(4))
def test_simulated_thresholds_agree_with_the_closed_form(seed: int) -> None:
    model = Projection.fit(REFERENCE, random_directions(2, 1000, np.random.default_rng(0)), shrink=0.1)
    null = model.simulate(200, np.random.default_rng(seed))
    assert null.limit(2) == pytest.approx(2.486, abs=0.1)
    assert null.limit(3) == pytest.approx(3.439, abs=0.1)
    sigmas = null.equivalent_sigma(score(model.directions, 0.1))
    assert sigmas[:3] == pytest.approx([0.94, 2.17, 0.0], abs=0.1)
    assert sigmas[3] == pytest.approx(3.29, abs=0.2)


@pytest.mark.parametrize(
    ("samples", "series", "shrink"), [(24, 3, None), (200, 8, 0.0), (40, 60, None), (20, 150, 0.3)]
)
def test_the_largest_score_has_the_distribution_of_scores_of_simulated_samples(samples, series, shrink) -> None:
    rng = np.random.default_rng(4)
    mixing = np.eye(series) + rng.normal(size=(series, series)) / np.sqrt(series)
    reference = rng.normal(size=(samples, series)) @ mixing
    model = Projection.fit(reference, random_directions(series, 200, rng), shrink=shrink)
    noise = rng.normal(size=(20_000, series)) * np.sqrt(model.shrink)
    mixture = rng.normal(size=(20_000, samples)) @ model.normal * np.sqrt((1 - model.shrink) / samples)
    simulated, _ = model.score(mixture + noise)
    rarities = np.array([0.5, 0.1, 0.01, THREE_SIGMA])
    sigmas = model.simulate(400, rng).equivalent_sigma(np.quantile(simulated, 1 - rarities))
    assert sigmas == pytest.approx(stats.norm.isf(rarities / 2), abs=0.12)


def test_in_one_dimension_the_score_is_z_whatever_the_shrinkage() -> None:
    values = np.array([[9.0], [14.0], [10.5]])
    reference = REFERENCE[:, :1]
    z = np.abs(values - 10) / reference.std()
    for shrink in (0.0, 0.1, 0.9):
        model = Projection.fit(reference, random_directions(1, 50, np.random.default_rng(3)), shrink=shrink)
        assert model.score(model.standardise(values))[0] == pytest.approx(z.ravel())


@pytest.mark.parametrize("shrink", [0.0, 0.1, 0.5])
def test_score_is_never_below_the_largest_z_and_grows_with_directions(shrink: float) -> None:
    rng = np.random.default_rng(5)
    reference, values = rng.normal(50, 5, (30, 12)), rng.normal(50, 8, (20, 12))
    many = random_directions(12, 400, rng)
    scores = []
    for count in (0, 88, 400):
        model = Projection.fit(reference, many[:count], shrink=shrink)
        z = model.standardise(values)
        scores.append(model.score(z)[0])
        assert (scores[-1] >= np.abs(z).max(axis=1) - 1e-9).all()
    assert (np.diff(scores, axis=0) >= -1e-9).all()


def test_score_does_not_depend_on_the_units_of_a_series() -> None:
    rng = np.random.default_rng(6)
    reference, values = rng.normal(5, 1, (30, 4)), rng.normal(5, 2, (9, 4))
    directions = random_directions(4, 60, rng)
    units = np.array([1.0, 1000.0, 0.01, 7.0])
    plain, scaled = (Projection.fit(data, directions) for data in (reference, reference * units))
    result = plain.score(plain.standardise(values))[0]
    assert scaled.score(scaled.standardise(values * units))[0] == pytest.approx(result)


def test_a_rarer_score_is_more_sigmas_however_far_it_lies() -> None:
    model = Projection.fit(REFERENCE, random_directions(2, 100, np.random.default_rng(0)))
    sigmas = model.simulate(200, np.random.default_rng(0)).equivalent_sigma(np.linspace(0, 60, 600))
    assert (np.diff(sigmas) >= 0).all()
    assert 59 < sigmas[-1] < 60


def test_false_flags_on_fresh_normal_data_stay_near_the_nominal_rate() -> None:
    rng = np.random.default_rng(1)
    loadings = rng.normal(size=(3, 20))
    reference, fresh = (rng.normal(size=(n, 3)) @ loadings + rng.normal(size=(n, 20)) for n in (40, 2000))
    directions = random_directions(20, 300, rng)
    model = Projection.fit(reference, directions)
    limit = model.simulate(200, rng).limit(3)
    assert (model.score(model.standardise(fresh))[0] > limit).mean() < 0.03
    assert (np.abs(model.standardise(fresh)).max(axis=1) > 3).mean() > 0.04
    guarded = max(limit, out_of_fold_maximum(reference, directions, shrink=None, robust=False))
    shifted = fresh + 6 * np.eye(20)[0] * fresh.std(axis=0)[0]
    assert (model.score(model.standardise(shifted))[0] > guarded).mean() > 0.5


def test_shrinkage_grows_when_series_outnumber_samples() -> None:
    assert shrinkage(90, 10) == pytest.approx(0.1)
    assert shrinkage(40, 200) == pytest.approx(200 / 240)


@pytest.mark.parametrize("parameters", [{}, {"group_by_service": True}])
def test_every_reading_sees_the_example_fault(parameters, example, faulty) -> None:
    detection = MKSMC(**parameters).detect(example.view(faulty))
    assert detection.alarm_ns is not None
    assert detection.alarm_ns > example.label(faulty).inject_start_ns
