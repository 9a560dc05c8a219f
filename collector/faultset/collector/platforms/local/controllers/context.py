"""What every controller works with: the store, the event log, the time and when to look again."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.platforms.local.controllers.start_times import AT_ONCE, StartTimes
from faultset.collector.platforms.observation.events import EventRecorder
from faultset.core.times import SECOND_NS

_SAFE = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(kw_only=True)
class Context:
    """Shared state of one cluster's controllers."""

    store: ObjectStore
    events: EventRecorder
    clock: Callable[[], int]
    rng: random.Random
    service_address: Callable[[], str]
    pod_address: Callable[[], str]
    factor: float = 1.0
    start_times: StartTimes = AT_ONCE
    api_socket: str | None = None
    due_ns: int | None = field(default=None)

    @property
    def now_ns(self) -> int:
        """The time in nanoseconds since 1970."""
        return self.clock()

    def requeue(self, at_ns: int) -> None:
        """Ask to be run again at `at_ns` at the latest."""
        if self.due_ns is None or at_ns < self.due_ns:
            self.due_ns = at_ns

    def scaled_ns(self, seconds: float) -> int:
        """Return a waiting time of the real cluster, scaled by the platform's back-off factor."""
        return int(seconds * self.factor * SECOND_NS)

    def suffix(self, length: int = 5) -> str:
        """Return random characters as in a pod's name."""
        return "".join(self.rng.choice(_SAFE) for _ in range(length))


def template_hash(template: Mapping[str, Any]) -> str:
    """Return the pod-template-hash of a Deployment's template: eight to ten characters without vowels."""
    digits = str(zlib.crc32(json.dumps(template, sort_keys=True).encode())).rjust(8, "0")
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in digits)
