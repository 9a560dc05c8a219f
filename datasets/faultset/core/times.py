"""Units of time: all times are UTC nanoseconds since 1970."""

from __future__ import annotations

SECOND_NS = 1_000_000_000
"""Nanoseconds in a second."""
