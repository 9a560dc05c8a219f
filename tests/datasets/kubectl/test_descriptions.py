"""What descriptions begin and end with."""

from __future__ import annotations

from typing import Any

from faultset.datasets.kubectl.descriptions import event_lines, metadata_lines


def event(time_s: int, reason: str, count: int = 1) -> dict[str, Any]:
    return {"time": time_s * 10**9, "type": "Normal", "reason": reason, "message": "so it is", "count": count}


def test_labels_that_are_not_known_are_left_out_and_none_are_said_to_be_none() -> None:
    assert metadata_lines(
        {"name": "geo", "namespace": "hotel", "labels": {"b": "2", "a": "1"}, "annotations": None}
    ) == [
        "Name:             geo",
        "Namespace:        hotel",
        "Labels:           a=1,b=2",
        "Annotations:      <none>",
    ]
    assert metadata_lines({"name": "volume"}) == ["Name:             volume"]


def test_events_stand_below_their_columns_with_how_often_they_came() -> None:
    assert event_lines([event(9, "Pulled"), event(11, "Killing", 4)], 20 * 10**9) == [
        "Events:",
        "  Type     Reason    Age       Message",
        "  Normal   Pulled    11s       so it is",
        "  Normal   Killing   9s (x4)   so it is",
    ]
    assert event_lines([], 0) == ["Events:           <none>"]
