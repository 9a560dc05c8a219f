"""Events as Kubernetes records them: one record per object and message, with a count that grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """One occurrence of an event."""

    time_ns: int
    type: str
    reason: str
    kind: str
    name: str
    service: str | None
    message: str
    count: int


class EventRecorder:
    """All occurrences, in the order in which they were recorded.

    Parameters
    ----------
    clock
        Returns the time in nanoseconds since 1970.
    service_of
        Returns the workload that owns an object, or None.
    """

    def __init__(self, *, clock: Callable[[], int], service_of: Callable[[Mapping[str, Any]], str | None]):
        self.occurrences: list[Occurrence] = []
        self._clock = clock
        self._service_of = service_of
        self._counts: dict[tuple[str, str, str], int] = {}

    def normal(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        """Record an event that is part of ordinary life."""
        self._record("Normal", about, reason, message)

    def warning(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        """Record an event that somebody should look at."""
        self._record("Warning", about, reason, message)

    def reasons(self, name: str) -> list[str]:
        """Return the reasons recorded about all objects of a name, in order."""
        return [occurrence.reason for occurrence in self.occurrences if occurrence.name == name]

    def _record(self, kind_of_event: str, about: Mapping[str, Any], reason: str, message: str) -> None:
        metadata = about["metadata"]
        key = (metadata["uid"], reason, message)
        self._counts[key] = self._counts.get(key, 0) + 1
        occurrence = Occurrence(
            time_ns=self._clock(),
            type=kind_of_event,
            reason=reason,
            kind=about["kind"],
            name=metadata["name"],
            service=self._service_of(about),
            message=message,
            count=self._counts[key],
        )
        self.occurrences.append(occurrence)
