"""Ages, tables and events as kubectl prints them."""

from __future__ import annotations

from typing import Any

import pytest

from faultset.datasets.kubectl.printing import age, duration, event_cells, last_occurrences

HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1.5, "0s"), (0, "0s"), (119.9, "119s"), (120, "2m"), (599, "9m59s"), (600, "10m"),
        (3 * HOUR - 1, "179m"), (3 * HOUR, "3h"), (7 * HOUR + 60, "7h1m"), (8 * HOUR + 60, "8h"), (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"), (7 * DAY + HOUR, "7d1h"), (8 * DAY + HOUR, "8d"), (730 * DAY - 1, "729d"), (730 * DAY, "2y"),
        (766 * DAY, "2y36d"), (8 * 365 * DAY + DAY, "8y"),
    ],
)  # fmt: skip
def test_durations_have_the_units_of_apimachinery(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_age_may_be_unknown() -> None:
    assert (age(None), age(61)) == ("<unknown>", "61s")


def event(time_s: int, reason: str, count: int = 1) -> dict[str, Any]:
    named = {"type": "Normal", "reason": reason, "kind": "Pod", "name": "geo-1", "message": "so it is"}
    return named | {"time": time_s * 10**9, "count": count}


def test_an_event_is_listed_once_at_its_last_time() -> None:
    events = last_occurrences([event(9, "Pulled"), event(3, "Killing"), event(5, "Pulled"), event(11, "Killing", 4)])
    assert [(one["reason"], one["time"] // 10**9) for one in events] == [("Pulled", 9), ("Killing", 11)]
    assert event_cells(events[0], 20 * 10**9) == ["11s", "Normal", "Pulled", "pod/geo-1", "so it is"]
