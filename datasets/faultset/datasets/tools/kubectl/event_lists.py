"""Events as `kubectl get events` and `kubectl events` list them: a line for each event, however often it came."""

from __future__ import annotations

from typing import Any

from faultset.datasets.tools.kinds import canonical_kind
from faultset.datasets.tools.kubectl.command_line import CommandError, KubectlCommand
from faultset.datasets.tools.kubectl.resources import age
from faultset.datasets.tools.kubectl.selection import check_namespace, field_terms
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.text_tables import in_columns
from faultset.datasets.tools.tool_answers import ToolAnswer, empty, found, not_recorded

_FIELDS = {
    "involvedObject.name": "name", "involvedObject.kind": "kind", "regarding.name": "name", "regarding.kind": "kind",
    "type": "type", "reason": "reason",
}  # fmt: skip


def recorded_events(recording: Recording, kind: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
    """Return the last occurrence of every event, the oldest first."""
    rows = recording.frame("events")
    if kind is not None:
        rows = rows[(rows["kind"] == kind) & (rows["name"] == name)]
    last: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows.to_dict("records"):
        key = (row["kind"], row["name"], row["reason"], row["message"])
        last.pop(key, None)
        last[key] = {str(field): value for field, value in row.items()}
    return list(last.values())


def event_list(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    """Answer `kubectl get events` and `kubectl events`."""
    check_namespace(recording, command)
    if not recording.has("events"):
        return not_recorded("this recording has no events")
    if command.output not in ("", "wide"):
        return not_recorded("events as documents; list them as a table")
    events = recorded_events(recording)
    for path, sign, value in field_terms(command.flags.get("--field-selector", "")):
        if path not in _FIELDS:
            return not_recorded(f'the field "{path[:60]}" of events')
        events = [one for one in events if (one[_FIELDS[path]] == value) == (sign != "!=")]
    if "--types" in command.flags:
        events = [one for one in events if one["type"] in command.flags["--types"].split(",")]
    if "--for" in command.flags:
        kind, slash, name = command.flags["--for"].partition("/")
        if not slash:
            raise CommandError("--for takes a kind and a name, as in --for pod/NAME")
        events = [one for one in events if one["kind"] == canonical_kind(kind) and one["name"] == name]
    if not events:
        return empty(f"no such event in the namespace {recording.namespace} since the recording began")
    rows = [event_cells(recording, one) for one in events]
    header = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    if command.flag("--all-namespaces"):
        header, rows = ["NAMESPACE", *header], [[recording.namespace, *row] for row in rows]
    text = in_columns(header, rows)
    return found(text.partition("\n")[2] if command.flag("--no-headers") else text)


def event_cells(recording: Recording, event: dict[str, Any]) -> list[object]:
    """Return an event as a line of a list."""
    seen = age((recording.clock.now_ns - event["time"].value) / 1e9)
    about = f"{event['kind'].lower()}/{event['name']}"
    return [seen, event["type"], event["reason"], about, event["message"]]
