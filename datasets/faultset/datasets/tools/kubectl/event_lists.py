"""Recorded events as `kubectl get events` and `kubectl events` list them."""

from __future__ import annotations

from faultset.datasets.kubectl.errors import CommandError
from faultset.datasets.kubectl.events import COLUMNS, Event, event_cells, last_occurrences
from faultset.datasets.kubectl.kinds import canonical_kind
from faultset.datasets.kubectl.selectors import field_terms
from faultset.datasets.kubectl.tables import in_columns
from faultset.datasets.tools.kubectl.command_line import KubectlCommand
from faultset.datasets.tools.kubectl.selection import check_namespace
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, empty, found, not_recorded

_FIELDS = {
    "involvedObject.name": "name", "involvedObject.kind": "kind", "regarding.name": "name", "regarding.kind": "kind",
    "type": "type", "reason": "reason",
}  # fmt: skip


def recorded_events(recording: Recording, kind: str | None = None, name: str | None = None) -> list[Event]:
    """Return the last occurrence of every event, the oldest first."""
    rows = recording.frame("events")
    if kind is not None:
        rows = rows[(rows["kind"] == kind) & (rows["name"] == name)]
    rows = rows.assign(time=rows["time"].astype("int64"))
    return last_occurrences({str(field): value for field, value in row.items()} for row in rows.to_dict("records"))


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
    rows = [event_cells(one, recording.clock.now_ns) for one in events]
    header = list(COLUMNS)
    if command.flag("--all-namespaces"):
        header, rows = ["NAMESPACE", *header], [[recording.namespace, *row] for row in rows]
    return found(in_columns(() if command.flag("--no-headers") else header, rows))
