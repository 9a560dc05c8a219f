"""What descriptions begin and end with."""

from __future__ import annotations

from typing import Any

from faultset.datasets.kubectl.documents import description
from faultset.datasets.kubectl.printing import event_lines


def event(time_s: int, reason: str, count: int = 1) -> dict[str, Any]:
    return {"time": time_s * 10**9, "type": "Normal", "reason": reason, "message": "so it is", "count": count}


def test_labels_that_are_not_known_are_left_out_and_none_are_said_to_be_none() -> None:
    metadata = {"name": "geo", "namespace": "hotel", "labels": {"b": "2", "a": "1"}, "annotations": None}
    assert description({"kind": "Secret", "metadata": metadata, "type": "Opaque"}) == [
        "Name:             geo",
        "Namespace:        hotel",
        "Labels:           a=1,b=2",
        "Annotations:      <none>",
        "type: Opaque",
    ]
    assert description({"kind": "Service", "metadata": {"name": "geo"}, "spec": {}}, age="5s") == [
        "Name:             geo",
        "Age:              5s",
        "Selector:         <none>",
    ]


def test_a_workload_shows_what_its_containers_ask_for() -> None:
    container = {
        "name": "geo",
        "image": "app:1",
        "args": ["--port", "1"],
        "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}, {"name": "A", "value": "1"}],
    }
    spec = {"replicas": 2, "template": {"spec": {"containers": [container], "nodeSelector": {"disk": "ssd"}}}}
    assert description({"kind": "StatefulSet", "metadata": {"name": "geo"}, "spec": spec})[1:] == [
        "Replicas:         2 desired | 0 available | 0 ready",
        "Pod Template:",
        "  Containers:",
        "   geo:",
        "    Image:          app:1",
        "    Args:           --port 1",
        "    Limits:",
        "      cpu:     1",
        "    Environment:",
        "      A:  1",
        '      B:  {"fieldRef":{"fieldPath":"x"}}',
        "  Node-Selectors:  disk=ssd",
    ]


def test_events_stand_below_their_columns_with_how_often_they_came() -> None:
    assert event_lines([event(9, "Pulled"), event(11, "Killing", 4)], 20 * 10**9) == [
        "Events:",
        "  Type     Reason    Age       Message",
        "  Normal   Pulled    11s       so it is",
        "  Normal   Killing   9s (x4)   so it is",
    ]
    assert event_lines([], 0) == ["Events:           <none>"]
