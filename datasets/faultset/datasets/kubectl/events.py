"""Events as kubectl lists them: a line for each event, however often it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.ages import duration

Event = Mapping[str, Any]
"""`time` in nanoseconds since 1970, `type`, `reason`, `kind`, `name`, `message` and `count`."""
COLUMNS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


def last_occurrences(events: Iterable[Event]) -> list[Event]:
    """Return the last occurrence of every event, the oldest first."""
    last: dict[tuple[str, ...], Event] = {}
    for event in sorted(events, key=lambda one: one["time"]):
        key = (event["kind"], event["name"], event["reason"], event["message"])
        last.pop(key, None)
        last[key] = event
    return list(last.values())


def event_cells(event: Event, now_ns: int) -> list[str]:
    """Return what stands below `COLUMNS`."""
    about = f"{event['kind'].lower()}/{event['name']}"
    return [duration((now_ns - event["time"]) / SECOND_NS), event["type"], event["reason"], about, event["message"]]
