"""SPOT at stricter levels."""

from __future__ import annotations

from faultset.baselines.methods.detection.streaming import SPOTDetector


def test_a_strict_level_raises_the_limit(example, faulty) -> None:
    view = example.view(faulty)
    loose = SPOTDetector().detect(view)
    strict = SPOTDetector(level=1e-9).detect(view)
    assert strict.scores.max() < loose.scores.max()
    assert loose.at_threshold(loose.scores.max()).alarm_ns is None
