"""Values in steps."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.collector.runtime.expressions import getter


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("$a", 1),
        ("$b.c", [2, 3]),
        ("$b.missing.deep", None),
        ("$nothing", None),
        ("plain", "plain"),
        ({"x": "$a", "y": ["$a", 5]}, {"x": 1, "y": [1, 5]}),
        ({"each": "$b.c", "value": {"n": "$item", "a": "$a"}}, [{"n": 2, "a": 1}, {"n": 3, "a": 1}]),
        ({"each": "$nothing", "value": "$item"}, []),
    ],
)
def test_templates_are_filled_in(template: Any, value: Any) -> None:
    assert getter(template)({"a": 1, "b": {"c": [2, 3]}}) == value
