"""Objects as `kubectl describe` prints them; secrets stay hidden."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import yaml

from faultset.collector.platforms.objects import Object
from faultset.datasets.kubectl.descriptions import event_lines, metadata_lines
from faultset.datasets.kubectl.events import Event

HIDDEN = "<hidden>"


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
    lines = metadata_lines({"labels": None, "annotations": None, **shown["metadata"]})
    body = {key: value for key, value in shown.items() if key not in ("apiVersion", "kind", "metadata")}
    lines += yaml.safe_dump(body, sort_keys=False, default_flow_style=False).rstrip().splitlines()
    return "\n".join([*lines, *event_lines(events, now_ns)])
