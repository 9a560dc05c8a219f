"""Changed specs, and the objects of a spec."""

from __future__ import annotations

from typing import Any

import yaml

from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.manifests import manifests


def changed(text: str, *path: Any, value: Any) -> str:
    """Return a spec with the value at a path replaced."""
    spec = yaml.safe_load(text)
    parent = spec
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return yaml.safe_dump(spec, sort_keys=False)


def objects_of(text: str) -> dict[tuple[str, str], Any]:
    """Return the objects of a spec by kind and name."""
    objects = manifests(read_app(text, "shop.yaml"), telemetry_endpoint="http://telemetry:4318")
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}
