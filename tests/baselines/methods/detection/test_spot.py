"""SPOT and DSPOT: drift, and stricter levels."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.detection.spot import DSPOTDetector, SPOTDetector, drift_free


def test_a_slow_drift_is_taken_away_and_a_step_is_not() -> None:
    drift = np.arange(40.0)[:, None]
    assert np.ptp(drift_free(drift, 10)) == pytest.approx(0.0)
    step = np.repeat([0.0, 1.0], 20)[:, None]
    assert drift_free(step, 10).max() == 1.0


@pytest.mark.parametrize("detector", [SPOTDetector(), DSPOTDetector()])
def test_a_strict_level_raises_the_limit(detector, example, faulty) -> None:
    view = example.view(faulty)
    loose = detector.detect(view)
    strict = type(detector)(level=1e-9).detect(view)
    assert strict.scores.max() < loose.scores.max()
    assert loose.at_threshold(loose.scores.max()).alarm_ns is None
