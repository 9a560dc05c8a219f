"""Outlier detectors on an example."""

from __future__ import annotations

import numpy as np

from faultset.baselines.methods.detection.outlier_detectors import PCADetector


def test_a_larger_subspace_leaves_a_smaller_residual(example, faulty) -> None:
    view = example.view(faulty)
    assert not np.array_equal(PCADetector(variance=0.5).detect(view).scores, PCADetector().detect(view).scores)
