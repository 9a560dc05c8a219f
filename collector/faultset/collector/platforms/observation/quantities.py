"""Kubernetes quantities as numbers."""

from __future__ import annotations

import re

_SUFFIXES = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip


def quantity(text: str | float) -> float:
    """Return a Kubernetes quantity as a number: `"250m"` is 0.25, `"64Mi"` is 67108864."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", str(text))
    if not match or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * _SUFFIXES[match[2]]
