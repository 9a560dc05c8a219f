"""Events as lines."""

from __future__ import annotations

from typing import Any

from faultset.datasets.kubectl.events import event_cells, last_occurrences


def event(time_s: int, reason: str, count: int = 1) -> dict[str, Any]:
    named = {"type": "Normal", "reason": reason, "kind": "Pod", "name": "geo-1", "message": "so it is"}
    return named | {"time": time_s * 10**9, "count": count}


def test_an_event_is_listed_once_at_its_last_time() -> None:
    events = last_occurrences([event(9, "Pulled"), event(3, "Killing"), event(5, "Pulled"), event(11, "Killing", 4)])
    assert [(one["reason"], one["time"] // 10**9) for one in events] == [("Pulled", 9), ("Killing", 11)]
    assert event_cells(events[0], 20 * 10**9) == ["11s", "Normal", "Pulled", "pod/geo-1", "so it is"]
