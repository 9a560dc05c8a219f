"""Objects as documents and descriptions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from faultset.datasets.kubectl.commands import CommandError
from faultset.datasets.kubectl.documents import MissingFieldError, description, document
from faultset.datasets.kubectl.printing import event_lines

PODS: list[dict[str, Any]] = [
    {"kind": "Pod", "metadata": {"name": name}, "apiVersion": "v1", "status": status}
    for name, status in (("geo-1", {"phase": "Running"}), ("rate-1", {}))
]


def test_one_object_stands_by_itself_and_several_in_a_list_in_the_order_of_their_keys() -> None:
    assert document(PODS[:1], "yaml", single=True).startswith("apiVersion: v1\nkind: Pod\nmetadata:\n  name: geo-1")
    assert list(json.loads(document(PODS, "json", single=False))) == ["apiVersion", "items", "kind", "metadata"]
    assert yaml.safe_load(document(PODS, "yaml", single=False))["items"] == PODS
    assert document(PODS, "name", single=False) == "pod/geo-1\npod/rate-1"


def test_fields_that_are_not_there_are_empty_or_unknown() -> None:
    template = "jsonpath={range .items[*]}{.metadata.name}={.status.phase};{end}"
    assert document(PODS, template, single=False) == "geo-1=Running;rate-1=;"
    assert document(PODS, "jsonpath={range .nothing[*]}{.x}{end}.", single=False) == "."
    with pytest.raises(MissingFieldError):
        document(PODS, template, single=False, unknown="?")
    columns = "custom-columns=N:.metadata.name,P:.status.phase"
    assert document(PODS, columns, single=False).split() == ["N", "P", "geo-1", "Running", "rate-1", "<none>"]
    assert document(PODS, columns, single=False, unknown="?").split()[-1] == "?"
    assert json.loads(document(PODS, "jsonpath-as-json={.items[*].metadata.name}", single=False)) == ["geo-1", "rate-1"]


@pytest.mark.parametrize(
    "output",
    ["toml", "jsonpath", "json=x", "custom-columns=x", "jsonpath={.a[}", "jsonpath={.a", "jsonpath=" + "x" * 5000],
)
def test_a_format_that_cannot_be_understood_is_refused(output: str) -> None:
    with pytest.raises(CommandError):
        document(PODS, output, single=False)


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
