"""The oracle: is the application repaired? Four questions, each asked of the live application and reported by itself.

1. fault: the fault's own check finds nothing.
2. requests: client requests are healthy over a sustained window.
3. objects: every object asks for what it asked for before the injection, but for what a repair may change.
4. presence: nothing that the application needs is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from faultset.collector.faults.registry import FaultSpec
from faultset.collector.mitigation.desired_state import DesiredState, pods_apart
from faultset.collector.mitigation.messages import OraclePartResult, Part
from faultset.collector.platforms.base import Platform
from faultset.core.errors import PlatformError

PARTS: tuple[Part, ...] = ("fault", "requests", "objects", "presence")
_MOST_NAMED = 3


@dataclass(frozen=True)
class HealthyState:
    """What is known of an application from before the injection.

    Attributes
    ----------
    with_endpoints
        Services that had ready endpoints.
    """

    desired: DesiredState
    with_endpoints: frozenset[str]

    @classmethod
    def of(cls, platform: Platform) -> HealthyState:
        """Return the present state."""
        return cls(DesiredState.of(platform), frozenset(_with_endpoints(platform)))


class MitigationOracle:
    """Judges one application with one fault.

    Parameters
    ----------
    platform, fault, target, parameters
        What was injected where, and what the injection returned.
    before
        What the fault's `observe` returned before the injection.
    healthy
        The application before the injection.
    unhealthy_requests
        Says what is wrong with client requests scheduled in a window of instants; empty when nothing is.
    """

    def __init__(
        self,
        platform: Platform,
        fault: FaultSpec,
        target: str,
        parameters: Mapping[str, Any],
        *,
        before: Any,
        healthy: HealthyState,
        unhealthy_requests: Callable[[int, int], str],
    ):
        self._platform, self._fault, self._target, self._parameters = platform, fault, target, parameters
        self._before, self._healthy, self._unhealthy_requests = before, healthy, unhealthy_requests

    def begin_window(self) -> None:
        """Ignore the events that the fault's check has counted so far."""
        # an object that is gone has counted nothing since
        with suppress(PlatformError):
            self._before = self._fault.state_from_now(self._platform, self._target, self._before)

    def read(self, start_ns: int, end_ns: int) -> tuple[OraclePartResult, ...]:
        """Ask the four questions; requests are those scheduled in `[start_ns, end_ns)`."""
        fault, requests = self._fault_seen(), self._unhealthy_requests(start_ns, end_ns)
        present = DesiredState.of(self._platform)
        wrong = {
            "fault": fault,
            "requests": requests,
            "objects": self._changed_objects(present),
            "presence": self._missing(present),
        }
        return tuple(OraclePartResult(part=part, ok=not wrong[part], detail=wrong[part]) for part in PARTS)

    def _fault_seen(self) -> str:
        """Return what the fault's check sees, or why it cannot look: a repair may have deleted what it looks at."""
        try:
            return self._fault.check(self._platform, self._target, self._parameters, self._before) or ""
        except PlatformError as error:
            return f"its check fails: {error}"

    def _changed_objects(self, present: DesiredState) -> str:
        return _listed([*self._healthy.desired.changes_to(present), *pods_apart(self._platform)])

    def _missing(self, present: DesiredState) -> str:
        gone = self._healthy.desired.missing_in(present)
        waiting = [
            claim["metadata"]["name"]
            for claim in self._platform.list("PersistentVolumeClaim")
            if claim.get("status", {}).get("phase", "Bound") != "Bound"
        ]
        empty = self._healthy.with_endpoints - _with_endpoints(self._platform)
        return _listed(
            [
                *(f"{kind} {name} is missing" for kind, name in gone),
                *(f"claim {name} has no volume" for name in waiting),
                *(f"Service {name} has no ready endpoint" for name in sorted(empty)),
            ]
        )


def _with_endpoints(platform: Platform) -> set[str]:
    return {
        found["metadata"]["name"]
        for found in platform.list("Endpoints")
        if any(subset.get("addresses") for subset in found.get("subsets") or [])
    }


def _listed(lines: list[str]) -> str:
    more = f", and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
    return "; ".join(lines[:_MOST_NAMED]) + more
