"""TraceRCA: severities and set scores compared with results by hand."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.trace_rca import jaccard, measure_severities


def test_jaccard_of_support_and_confidence_as_computed_by_hand() -> None:
    with_set, all_with = np.array([4.0, 4.0, 1.0]), np.array([5.0, 10.0, 4.0])
    support, confidence = with_set / 4, with_set / all_with
    harmonic = 2 * support * confidence / (support + confidence)
    np.testing.assert_allclose(harmonic, [0.8889, 0.5714, 0.25], atol=5e-5)
    np.testing.assert_allclose(jaccard(with_set, 4.0, all_with), harmonic / (2 - harmonic))
    np.testing.assert_allclose(jaccard(with_set, 4.0, all_with), [0.8, 0.4, 0.1429], atol=5e-5)


def test_a_drop_is_as_severe_as_a_rise() -> None:
    values = np.array([10.0, 12.0, 8.0, 10.0, 30.0, -10.0])
    result = measure_severities(values, np.zeros(6, dtype=int), np.arange(6) < 4)
    assert result[4] == pytest.approx(result[5])
    assert result[4] > 3


def test_a_constant_kind_of_call_does_not_fire_at_its_usual_value() -> None:
    result = measure_severities(np.full(5, 7.0), np.zeros(5, dtype=int), np.arange(5) < 3)
    assert result.tolist() == [0] * 5
