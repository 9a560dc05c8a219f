"""Tools about the system as a whole: what it is made of, its objects, its events."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from faultset.datasets.kubectl.answers import ToolAnswer, absent, empty, folded_table, found, invalid, not_recorded
from faultset.datasets.kubectl.kinds import canonical_kind
from faultset.datasets.kubectl.printing import stamp
from faultset.datasets.tools.recording import RECORDED_KINDS, Recording

Kind = Annotated[str, Field(description="Kind of object, for instance Pod, Deployment, Service or Endpoints.")]
ServiceFilter = Annotated[str | None, Field(description="Only of this service.")]
At = Annotated[float | None, Field(ge=0, description="As it was so many seconds before now.")]
SinceS = Annotated[float | None, Field(gt=0, description="Only the last so many seconds; all by default.")]
Limit = Annotated[int, Field(ge=1, le=1000, description="At most so many rows.")]
Cursor = Annotated[int, Field(ge=0, description="Rows to pass over; an answer with more to come names it.")]


_EVENT_COLUMNS = ("type", "reason", "kind", "name", "message")


class StateTools:
    """Tools that read the context, the objects and the events."""

    recording: Recording

    def describe_system(self) -> ToolAnswer:
        """Say what the system is: its services, who calls whom, where clients enter, the time, and what is recorded."""
        context, clock = self.recording.context, self.recording.clock
        tables = [table for table in ("metrics", "spans", "logs", "events", "objects") if self.recording.has(table)]
        lines = [
            f"application: {context.app} (namespace {self.recording.namespace})",
            f"services ({len(context.services)}): {', '.join(context.services)}",
            f"clients enter at: {context.workload_entry}",
            "calls: " + "; ".join(f"{caller} -> {callee}" for caller, callee in context.calls),
            f"recorded from: {stamp(clock.start_ns)}",
            f"known to be healthy until: {stamp(context.reference_end_ns)}",
            f"now: {stamp(clock.now_ns)}" + (f"; {clock.left_s:g} s more can be waited for" if clock.left_s else ""),
            f"recorded tables: {', '.join(tables)}",
        ]
        return found("\n".join(lines))

    def list_objects(self, kind: Kind, service: ServiceFilter = None, seconds_ago: At = None) -> ToolAnswer:
        """List the objects of a kind with their state."""
        from faultset.core.json_text import canonical_json

        problem, name = self._kind(kind)
        if problem:
            return problem
        if service is not None and service not in self.recording.services:
            return absent("service", service, self.recording.services)
        records = self.recording.object_records(name, self._at_ns(seconds_ago))
        rows = [
            (key, row["service"], canonical_json({k: v for k, v in row["state"].items() if k != "data"}))
            for key, row in sorted(records.items())
            if service in (None, row["service"])
        ]
        if not rows:
            return empty(f"there is no {name}" + (f" of {service}" if service else ""))
        return found(folded_table(["NAME", "SERVICE", "STATE"], rows))

    def get_object(
        self,
        kind: Kind,
        name: Annotated[str, Field(description="Name of the object.")],
        seconds_ago: At = None,
        history: Annotated[bool, Field(description="Show every change of its state instead.")] = False,
    ) -> ToolAnswer:
        """Show the recorded fields of one object, or how they changed."""
        from faultset.datasets.kubectl.documents import yaml_text

        problem, known_kind = self._kind(kind)
        if problem:
            return problem
        if history:
            changes = self.recording.history(known_kind, name)
            if not changes:
                return absent(known_kind, name, self.recording.objects(known_kind))
            return found("\n".join(f"{stamp(change['time_ns'])}  {change['text']}" for change in changes))
        states = self.recording.objects(known_kind, self._at_ns(seconds_ago))
        if name not in states:
            return absent(known_kind, name, states)
        return found(f"# recorded fields only\n{yaml_text(states[name])}")

    def list_events(
        self,
        service: ServiceFilter = None,
        type: Annotated[str | None, Field(description="Normal or Warning.")] = None,  # noqa: A002
        since_s: SinceS = None,
        limit: Limit = 100,
        cursor: Cursor = 0,
    ) -> ToolAnswer:
        """List Kubernetes events, the oldest first."""
        recording = self.recording
        problem = recording.problem("events", service)
        if problem:
            return problem
        if type is not None and type.lower() not in ("normal", "warning"):
            return invalid(f'events have the type Normal or Warning, not "{type[:40]}"')
        since_ns = recording.clock.since_ns(since_s)
        rows = recording.frame("events", since_ns)
        if service is not None:
            rows = rows[rows["service"] == service]
        if type is not None:
            rows = rows[rows["type"] == type.capitalize()]
        if not len(rows):
            return empty(f"no event since {stamp(since_ns)}")
        part = rows.iloc[cursor : cursor + limit]
        cells = [
            (stamp(time), *words, f"{kind}/{name}", message)
            for time, *words, kind, name, message in zip(
                part["time"].astype("int64"), *(part[key] for key in _EVENT_COLUMNS), strict=True
            )
        ]
        more = cursor + limit if cursor + limit < len(rows) else None
        return found(folded_table(["TIME", "TYPE", "REASON", "OBJECT", "MESSAGE"], cells), more)

    def _at_ns(self, seconds_ago: float | None) -> int | None:
        return None if seconds_ago is None else self.recording.clock.since_ns(seconds_ago) + 1

    def _kind(self, kind: str) -> tuple[ToolAnswer | None, str]:
        name = canonical_kind(kind)
        if name is None or name not in RECORDED_KINDS:
            kinds = ", ".join(RECORDED_KINDS)
            return not_recorded(f'objects of the kind "{kind[:60]}"; recorded are {kinds}'), ""
        return self.recording.problem("objects"), name
