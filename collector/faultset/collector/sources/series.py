"""What identifies one metric series, wherever its samples come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from faultset.core.json_text import canonical_json

DROPPED_LABELS = frozenset({"namespace", "instance", "id"})
"""Labels that name the place instead of the series; they differ between runs of the same application."""


class SeriesKey(NamedTuple):
    """Everything of a metrics row but its time and value; `service` may be filled in from the pod later."""

    service: str | None
    pod: str | None
    container: str | None
    metric: str
    labels: str
    kind: str


def canonical_labels(labels: Mapping[str, str]) -> str:
    """Return the labels that belong to the series as canonical JSON."""
    return canonical_json({name: value for name, value in labels.items() if name not in DROPPED_LABELS})
