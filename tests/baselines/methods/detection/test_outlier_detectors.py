"""Outlier detectors on an example."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.detection.mksmc import MKSMC
from faultset.baselines.methods.detection.outlier_detectors import PCADetector


def test_a_larger_subspace_leaves_a_smaller_residual(example, faulty) -> None:
    view = example.view(faulty)
    assert not np.array_equal(PCADetector(variance=0.5).detect(view).scores, PCADetector().detect(view).scores)


@pytest.mark.parametrize("parameters", [{}, {"group_by_service": True}])
def test_every_reading_sees_the_example_fault(parameters, example, faulty) -> None:
    detection = MKSMC(**parameters).detect(example.view(faulty))
    assert detection.alarm_ns is not None
    assert detection.alarm_ns > example.label(faulty).inject_start_ns
