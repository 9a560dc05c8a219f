"""Kubernetes quantities as numbers."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.objects import quantity


@pytest.mark.parametrize(
    ("text", "value"), [("250m", 0.25), ("2", 2.0), ("64Mi", 67_108_864.0), ("1Gi", 2.0**30), ("5k", 5000.0), (3, 3.0)]
)
def test_quantities_are_read_as_kubernetes_does(text, value):
    assert quantity(text) == value


def test_a_wrong_quantity_is_refused():
    with pytest.raises(ValueError, match="'a lot' is not a quantity"):
        quantity("a lot")
