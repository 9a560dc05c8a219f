"""Tools for the system's services, objects and events."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from faultset.datasets.kubectl.kinds import canonical_kind
from faultset.datasets.kubectl.printing import (
    ToolAnswer,
    answer_absent,
    answer_empty,
    answer_invalid,
    answer_not_recorded,
    answer_ok,
    format_folded_table,
    stamp,
)
from faultset.datasets.tools.recording import RECORDED_KINDS, VisibleTables

Kind = Annotated[str, Field(description="Kind of object, for instance Pod, Deployment, Service or Endpoints.")]
ServiceFilter = Annotated[str | None, Field(description="Show only data of this service.")]
At = Annotated[float | None, Field(ge=0, description="Show the state this many seconds before now.")]
SinceS = Annotated[float | None, Field(gt=0, description="Show only the last N seconds; all by default.")]
Limit = Annotated[int, Field(ge=1, le=1000, description="Maximum number of rows.")]
Cursor = Annotated[int, Field(ge=0, description="Rows to skip; an incomplete answer names the next cursor.")]


_EVENT_COLUMNS = ("type", "reason", "kind", "name", "message")


class StateTools:
    """Tools that read the context, the objects and the events."""

    recording: VisibleTables

    def describe_system(self) -> ToolAnswer:
        """Describe the system: services, calls between them, entry service, current time, and recorded tables."""
        context, clock = self.recording.context, self.recording.clock
        tables = [table for table in ("metrics", "spans", "logs", "events", "objects") if self.recording.has(table)]
        lines = [
            f"application: {context.app} (namespace {self.recording.namespace})",
            f"services ({len(context.services)}): {', '.join(context.services)}",
            f"clients enter at: {context.workload_entry}",
            "calls: " + "; ".join(f"{caller} -> {callee}" for caller, callee in context.calls),
            f"recorded from: {stamp(clock.start_ns)}",
            f"healthy until: {stamp(context.reference_end_ns)}",
            f"now: {stamp(clock.now_ns)}" + (f"; you can wait for {clock.left_s:g} s more" if clock.left_s else ""),
            f"recorded tables: {', '.join(tables)}",
        ]
        return answer_ok("\n".join(lines))

    def list_objects(self, kind: Kind, service: ServiceFilter = None, seconds_ago: At = None) -> ToolAnswer:
        """List the objects of a kind with their state."""
        from faultset.core.files import canonical_json

        problem, name = self._kind(kind)
        if problem:
            return problem
        if service is not None and service not in self.recording.services:
            return answer_absent("service", service, self.recording.services)
        records = self.recording.object_records(name, self._at_ns(seconds_ago))
        rows = [
            (key, row["service"], canonical_json({k: v for k, v in row["state"].items() if k != "data"}))
            for key, row in sorted(records.items())
            if service in (None, row["service"])
        ]
        if not rows:
            return answer_empty(f"there is no {name}" + (f" of {service}" if service else ""))
        return answer_ok(format_folded_table(["NAME", "SERVICE", "STATE"], rows))

    def get_object(
        self,
        kind: Kind,
        name: Annotated[str, Field(description="Name of the object.")],
        seconds_ago: At = None,
        history: Annotated[bool, Field(description="Show all changes of the object's state instead.")] = False,
    ) -> ToolAnswer:
        """Show the recorded fields of one object, or how they changed."""
        from faultset.datasets.kubectl.documents import yaml_text

        problem, canonical = self._kind(kind)
        if problem:
            return problem
        if history:
            changes = self.recording.history(canonical, name)
            if not changes:
                return answer_absent(canonical, name, self.recording.objects(canonical))
            return answer_ok("\n".join(f"{stamp(change['time_ns'])}  {change['text']}" for change in changes))
        states = self.recording.objects(canonical, self._at_ns(seconds_ago))
        if name not in states:
            return answer_absent(canonical, name, states)
        return answer_ok(f"# recorded fields only\n{yaml_text(states[name])}")

    def list_events(
        self,
        service: ServiceFilter = None,
        type: Annotated[str | None, Field(description="Normal or Warning.")] = None,  # noqa: A002
        since_s: SinceS = None,
        limit: Limit = 100,
        cursor: Cursor = 0,
    ) -> ToolAnswer:
        """List Kubernetes events, oldest first."""
        recording = self.recording
        if problem := recording.problem("events", service):
            return problem
        if type is not None and type.lower() not in ("normal", "warning"):
            return answer_invalid(f'the type of events must be Normal or Warning, got "{type[:40]}"')
        since_ns = recording.clock.since_ns(since_s)
        rows = recording.frame("events", since_ns)
        if service is not None:
            rows = rows[rows["service"] == service]
        if type is not None:
            rows = rows[rows["type"] == type.capitalize()]
        if not len(rows):
            return answer_empty(f"no event since {stamp(since_ns)}")
        page = rows.iloc[cursor : cursor + limit]
        cells = [
            (stamp(time), *words, f"{kind}/{name}", message)
            for time, *words, kind, name, message in zip(
                page["time"].astype("int64"), *(page[key] for key in _EVENT_COLUMNS), strict=True
            )
        ]
        more = cursor + limit if cursor + limit < len(rows) else None
        return answer_ok(format_folded_table(["TIME", "TYPE", "REASON", "OBJECT", "MESSAGE"], cells), more)

    def _at_ns(self, seconds_ago: float | None) -> int | None:
        return None if seconds_ago is None else self.recording.clock.since_ns(seconds_ago) + 1

    def _kind(self, kind: str) -> tuple[ToolAnswer | None, str]:
        name = canonical_kind(kind)
        if name is None or name not in RECORDED_KINDS:
            kinds = ", ".join(RECORDED_KINDS)
            return answer_not_recorded(f'objects of the kind "{kind[:60]}"; the recorded kinds are {kinds}'), ""
        return self.recording.problem("objects"), name
