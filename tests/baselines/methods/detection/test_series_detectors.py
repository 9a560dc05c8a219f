"""Detectors of single series."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.methods.detection.series_detectors import (
    Spot,
    SPOTDetector,
    extrapolate,
    fit_pareto,
    recent_change,
    residual_scores,
    run_lengths,
    saliency,
)

RNG = np.random.default_rng(0)
genpareto: Any = stats.genpareto  # the stubs are too narrow


def test_run_lengths_are_bayes_rule_worked_out_the_long_way() -> None:
    values = np.array([0.3, -0.5, 4.0, 4.4])
    hazard, known = 1 / 50, 2.0
    belief = {0: 1.0}
    for step, value in enumerate(values):
        joint = {}
        for run, weight in belief.items():
            past = values[step - run : step]
            kappa, alpha = 1 + run, (known + run) / 2
            mean = past.sum() / kappa
            beta = known / 2 + ((past - past.mean()) ** 2).sum() / 2 if run else known / 2
            if run:
                beta += run * past.mean() ** 2 / (2 * kappa)
            scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
            joint[run] = weight * stats.t.pdf(value, 2 * alpha, mean, scale)
        total = sum(joint.values())
        belief = {0: hazard} | {run + 1: (1 - hazard) * weight / total for run, weight in joint.items()}
    result = run_lengths(values[:, None], [0], expected_run=50, prior_samples=known, longest=10)[-1, 0]
    assert result[:5] == pytest.approx([belief[run] for run in range(5)])
    assert result[5:].sum() == pytest.approx(0.0)


def test_a_shift_of_the_mean_is_dated_to_the_sample() -> None:
    streams = RNG.normal(size=(60, 1))
    streams[40:] += 6
    posterior = run_lengths(streams, [0], prior_samples=40)
    assert posterior.sum(axis=2) == pytest.approx(np.ones((60, 1)))
    assert int(posterior[45, 0].argmax()) == 6
    odds = recent_change(posterior)[:, 0]
    assert odds[42] > 3
    assert odds[10:40].max() < 1


def test_streams_of_a_group_convince_together() -> None:
    streams = RNG.normal(size=(50, 6))
    streams[40:] += 1.5
    together = recent_change(run_lengths(streams, [0], prior_samples=40))[44].max()
    alone = recent_change(run_lengths(streams, list(range(6)), prior_samples=40))[44].max()
    assert together > alone


def test_a_long_run_is_judged_by_its_last_samples() -> None:
    streams = RNG.normal(size=(300, 2))
    posterior = run_lengths(streams, [0, 1], prior_samples=40, longest=20)
    assert (posterior[-1, :, -1] > 0.8).all()
    streams[280:] += 8
    assert (recent_change(run_lengths(streams, [0, 1], prior_samples=40, longest=20))[283] > 3).all()


def test_a_strict_level_raises_the_limit(example, faulty) -> None:
    view = example.view(faulty)
    loose = SPOTDetector().detect(view)
    strict = SPOTDetector(level=1e-9).detect(view)
    assert strict.scores.max() < loose.scores.max()


def test_saliency_is_the_formula_of_the_paper() -> None:
    series = RNG.normal(size=32)
    spectrum = np.fft.fft(series)
    log_amplitude = np.log(np.abs(spectrum))
    padded = np.concatenate([log_amplitude[:1], log_amplitude, log_amplitude[-1:]])
    residual = log_amplitude - np.array([padded[k : k + 3].mean() for k in range(32)])
    assert saliency(series) == pytest.approx(np.abs(np.fft.ifft(np.exp(residual + 1j * np.angle(spectrum)))))


def test_what_is_appended_continues_the_line_and_ignores_the_last_sample() -> None:
    line = np.arange(12.0)
    outlier = np.append(line[:-1], 99.0)
    assert extrapolate(outlier)[-5:].tolist() == [11.0] * 5
    assert extrapolate(np.stack([line, outlier])).shape == (2, 17)


def test_a_step_is_most_salient_in_its_first_sample() -> None:
    streams = RNG.normal(size=(60, 1))
    streams[40:] += 12
    scores = residual_scores(streams, 24)[:, 0]
    assert int(scores.argmax()) + 23 == 40
    assert scores.max() > 3
    assert np.median(scores) < 1


def test_the_score_of_a_sample_does_not_depend_on_later_ones() -> None:
    streams = RNG.normal(size=(50, 3))
    np.testing.assert_array_equal(residual_scores(streams, 16)[:20], residual_scores(streams[:35], 16))


def test_a_constant_stream_is_not_salient() -> None:
    still = np.full((40, 1), 3.0) + 1e-12 * RNG.normal(size=(40, 1))
    assert not residual_scores(still, 16).any()


@pytest.mark.parametrize("gamma", [-0.3, 0.0, 0.2, 0.5, 0.9])
def test_the_fit_is_as_likely_as_the_one_of_scipy(gamma: float) -> None:
    excesses = np.asarray(genpareto.rvs(gamma, scale=2, size=1000, random_state=7))
    shape, scale = fit_pareto(excesses)
    theirs = genpareto.fit(excesses, floc=0)
    ours = genpareto.logpdf(excesses, shape, 0, scale).sum()
    assert ours > genpareto.logpdf(excesses, *theirs).sum() - 0.01
    assert shape == pytest.approx(theirs[0], abs=0.02)


@pytest.mark.parametrize("excesses", [[], [3.0], [0.0, 0.0], [2.0, 2.0, 2.0]])
def test_a_tail_of_nearly_nothing_is_exponential_or_finite(excesses: list[float]) -> None:
    shape, scale = fit_pareto(np.array(excesses))
    assert np.isfinite(shape)
    assert scale > 0


@pytest.mark.parametrize("level", [1e-2, 1e-3, 1e-4])
def test_exponential_data_exceeds_the_limit_at_the_wanted_rate(level: float) -> None:
    rng = np.random.default_rng(1)
    rates = []
    for _ in range(20):
        spot = Spot(level, fallback=3.0, initial=0.95).start(rng.exponential(size=5000))
        rates.append(float(np.exp(-spot.limit)))
    assert np.median(rates) == pytest.approx(level, rel=0.5)


def test_the_limit_learns_from_what_stays_below_it_and_from_nothing_else() -> None:
    rng = np.random.default_rng(2)
    spot = Spot(1e-4, fallback=3.0).start(rng.exponential(size=2000))
    before = spot.limit
    spot.learn(np.full(100, 10 * before))
    assert spot.limit == before
    for _ in range(40):
        spot.learn(2.0 * rng.exponential(size=100))
    assert spot.limit > 1.2 * before


def test_with_too_few_excesses_the_limit_is_the_other_one() -> None:
    assert Spot(1e-4, fallback=4.5).start(np.zeros(1000)).limit == 4.5
    assert Spot(1e-4, fallback=4.5).start(np.zeros(0)).limit == 4.5
