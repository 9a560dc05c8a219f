"""The readings of MKSMC on an example."""

from __future__ import annotations

import pytest

from faultset.baselines.methods.detection.mksmc import MKSMC


@pytest.mark.parametrize("parameters", [{}, {"group_by_service": True}])
def test_every_reading_sees_the_example_fault(parameters, example, faulty) -> None:
    found = MKSMC(**parameters).detect(example.view(faulty))
    assert found.alarm_ns is not None
    assert found.alarm_ns > example.label(faulty).inject_start_ns
