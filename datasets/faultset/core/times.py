"""Units of time, and lengths of time as people write them: all times are UTC nanoseconds since 1970."""

from __future__ import annotations

import math
import re

SECOND_NS = 1_000_000_000
"""Nanoseconds in a second."""
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return a length of time as seconds; infinite when it is too long for a number.

    >>> parse_duration("1m30s"), parse_duration("500ms")
    (90.0, 0.5)

    Raises
    ------
    ValueError
        It is not made of numbers with the units ms, s, m and h.
    """
    if not text or _PART.sub("", text):
        raise ValueError(f"{text[:40]!r} is not a duration")
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    return seconds if math.isfinite(seconds) else math.inf
