"""Lengths of time as people write them."""

from __future__ import annotations

import math

import pytest

from faultset.core.times import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0), ("0s", 0.0), ("9" * 400 + "h", math.inf)],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5d", "soon", "٣s", "5s!"])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
