"""Objects as `kubectl describe` prints them; secrets stay hidden."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import yaml

from faultset.collector.platforms.api.objects import Object
from faultset.datasets.kubectl.events import Event, described_events
from faultset.datasets.kubectl.object_tables import pairs

HIDDEN = "<hidden>"
_LABEL_WIDTH = 14


def without_secrets(found: Object) -> Object:
    """Return an object without the values of a Secret, of which outputs and results must hold none."""
    if found["kind"] != "Secret":
        return found
    made = copy.deepcopy(found)
    for field in ("data", "stringData"):
        if made.get(field):
            made[field] = dict.fromkeys(made[field], HIDDEN)
    return made


def description(found: Object, events: Sequence[Event], now_ns: int) -> str:
    """Return what `kubectl describe` says of an object: metadata, spec and status as text, and its events."""
    shown = without_secrets(found)
    metadata = shown["metadata"]
    head = {
        "Name": metadata["name"],
        "Namespace": metadata.get("namespace", ""),
        "Labels": pairs(metadata.get("labels")),
        "Annotations": pairs(metadata.get("annotations")),
    }
    lines = [f"{key + ':':<{_LABEL_WIDTH}}{value}" for key, value in head.items()]
    body = {key: value for key, value in shown.items() if key not in ("apiVersion", "kind", "metadata")}
    lines += yaml.safe_dump(body, sort_keys=False, default_flow_style=False).rstrip().splitlines()
    return "\n".join([*lines, *described_events(events, now_ns, _LABEL_WIDTH)])
