"""Objects as the texts that `kubectl get -o yaml` and `kubectl describe` print; secrets stay hidden."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from faultset.collector.mitigation.kubectl.tables import aligned, duration
from faultset.collector.platforms.api.objects import Object
from faultset.core.times import SECOND_NS

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


def document(objects: Sequence[Object], form: str, *, single: bool) -> str:
    """Return objects as `json`, `yaml` or `name`; several as a List."""
    shown = [without_secrets(found) for found in objects]
    content: Any = shown[0] if single and shown else {"apiVersion": "v1", "kind": "List", "items": shown}
    return json.dumps(content, indent=4) if form == "json" else yaml.safe_dump(content, sort_keys=False).rstrip()


def description(found: Object, events: Sequence[Mapping[str, Any]], now_ns: int) -> str:
    """Return what `kubectl describe` says of an object: metadata, spec and status as text, and its events."""
    shown = without_secrets(found)
    metadata = shown["metadata"]
    head = {
        "Name": metadata["name"],
        "Namespace": metadata.get("namespace", ""),
        "Labels": ",".join(f"{key}={value}" for key, value in (metadata.get("labels") or {}).items()) or "<none>",
        "Annotations": ",".join(f"{key}={value}" for key, value in (metadata.get("annotations") or {}).items())
        or "<none>",
    }
    lines = [f"{key + ':':<14}{value}" for key, value in head.items()]
    body = {key: value for key, value in shown.items() if key not in ("apiVersion", "kind", "metadata")}
    lines += yaml.safe_dump(body, sort_keys=False, default_flow_style=False).rstrip().splitlines()
    if not events:
        return "\n".join([*lines, "Events:  <none>"])
    return "\n".join(
        [*lines, "Events:", *(f"  {line}" for line in event_table(events, now_ns, of_one=True).splitlines())]
    )


def event_table(events: Sequence[Mapping[str, Any]], now_ns: int, *, of_one: bool = False) -> str:
    """Return events as `kubectl get events` prints them, or as they stand at the end of a description."""
    rows: list[list[str]] = [
        ["Type", "Reason", "Age", "Message"] if of_one else ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    ]
    for event in events:
        seen = duration((now_ns - event["time"]) / SECOND_NS)
        times = f" (x{event['count']})" if event["count"] > 1 else ""
        if of_one:
            rows.append([event["type"], event["reason"], seen + times, event["message"]])
        else:
            place = f"{event['kind'].lower()}/{event['name']}"
            rows.append([seen, event["type"], event["reason"], place, event["message"]])
    return aligned(rows)
