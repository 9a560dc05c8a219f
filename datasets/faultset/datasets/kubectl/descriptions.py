"""What every description of kubectl has: fields with labels, metadata at the head, and events at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.ages import duration
from faultset.datasets.kubectl.events import Event
from faultset.datasets.kubectl.object_tables import pairs
from faultset.datasets.kubectl.tables import in_columns

_LABEL_WIDTH = 18


def labelled(label: str, value: object) -> str:
    """Return a field on one line.

    >>> labelled("Name", "geo")
    'Name:             geo'
    """
    return f"{label + ':':<{_LABEL_WIDTH}}{value}"


def metadata_lines(metadata: Mapping[str, Any]) -> list[str]:
    """Return an object's name, namespace, labels and annotations; those that are not known (no key) are left out."""
    lines = [labelled("Name", metadata["name"])]
    if metadata.get("namespace"):
        lines.append(labelled("Namespace", metadata["namespace"]))
    return lines + [
        labelled(key.capitalize(), pairs(metadata[key])) for key in ("labels", "annotations") if key in metadata
    ]


def event_lines(events: Sequence[Event], now_ns: int) -> list[str]:
    """Return the events of an object."""
    if not events:
        return [labelled("Events", "<none>")]
    rows = [(event["type"], event["reason"], _seen(event, now_ns), event["message"]) for event in events]
    return ["Events:", *(f"  {line}" for line in in_columns(["Type", "Reason", "Age", "Message"], rows).split("\n"))]


def _seen(event: Event, now_ns: int) -> str:
    text = duration((now_ns - event["time"]) / SECOND_NS)
    return f"{text} (x{event['count']})" if event["count"] > 1 else text
