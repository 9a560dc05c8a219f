"""What an attempt to repair an application meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.faults.registry import FaultSpec
from faultset.datasets.views import EpisodeView


@dataclass(frozen=True, kw_only=True)
class LiveFault:
    """A fault that has been injected, and the application around it.

    Attributes
    ----------
    onset_ns
        Begin of the injection.
    before
        What the fault's `observe` returned before the injection.
    manifest
        Whether client requests feel the fault.
    unhealthy_requests
        Says what is wrong with client requests in a window of instants; empty when nothing is.
    undo
        Undoes the injection, and ends its repetitions.
    sleep
        Waits, in seconds, while a fault that is injected repeatedly goes on; raises when the episode is to end.
    clock
        Returns the time in nanoseconds since 1970.
    recorded
        Returns what has been recorded of the episode up to now; each takes the place of the one before.
    """

    fault: FaultSpec
    target: str
    parameters: Mapping[str, Any]
    before: Any
    onset_ns: int
    manifest: bool
    unhealthy_requests: Callable[[int, int], str]
    undo: Callable[[], None]
    sleep: Callable[[float], None]
    clock: Callable[[], int]
    recorded: Callable[[], EpisodeView]
