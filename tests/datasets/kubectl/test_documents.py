"""Objects as documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from faultset.datasets.kubectl.commands import CommandError
from faultset.datasets.kubectl.documents import MissingFieldError, document

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
