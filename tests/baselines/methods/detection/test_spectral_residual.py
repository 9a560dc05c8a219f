"""The saliency of a stream against the formula of the paper."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.detection.streaming import extended, residual_scores, saliency

RNG = np.random.default_rng(0)


def test_the_saliency_of_a_spike_is_largest_at_the_spike() -> None:
    series = np.ones(16)
    series[10] = 5
    assert int(saliency(series).argmax()) == 10


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
    assert extended(outlier)[-5:].tolist() == [11.0] * 5
    assert extended(np.stack([line, outlier])).shape == (2, 17)


def test_a_step_stands_out_in_the_sample_in_which_it_comes() -> None:
    streams = RNG.normal(size=(60, 1))
    streams[40:] += 12
    scores = residual_scores(streams, 24)[:, 0]
    assert int(scores.argmax()) + 23 == 40
    assert scores.max() > 3
    assert np.median(scores) < 1


def test_the_score_of_a_sample_does_not_depend_on_later_ones() -> None:
    streams = RNG.normal(size=(50, 3))
    np.testing.assert_array_equal(residual_scores(streams, 16)[:20], residual_scores(streams[:35], 16))


def test_a_stream_that_stands_still_is_not_salient() -> None:
    still = np.full((40, 1), 3.0) + 1e-12 * RNG.normal(size=(40, 1))
    assert not residual_scores(still, 16).any()
