"""What every controller works with: the store, the event log, the time and when to look again."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.platforms.observation.events import EventRecorder
from faultset.core.times import SECOND_NS


@dataclass(frozen=True, kw_only=True)
class StartTimes:
    """Waits on the way from a decision to a program that listens, in seconds.

    Attributes
    ----------
    sandbox_s
        From the scheduling of a pod to the start of its containers.
    noticed_s
        From the end of a container until the kubelet looks at the pod again.
    program_s
        From the start of a container until its program runs.
    probe_again_s
        From a failed readiness probe of a container that was never ready to the next one; None for as long as the
        probe says.
    """

    sandbox_s: float = 0.0
    noticed_s: float = 0.0
    program_s: float = 0.0
    probe_again_s: float | None = None


AT_ONCE = StartTimes()
BEFORE_CLIENTS = StartTimes(probe_again_s=0.1)
"""What holds until there are clients who could notice."""
AS_ON_A_CLUSTER = StartTimes(sandbox_s=0.6, noticed_s=1.0, program_s=1.5)
"""Medians on a single node, containerd, the image present: sandbox and task; the kubelet's relist; a program's imports
under the limit of its processor time. Here a program is a fork of a process that has imported all of it."""


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
    _hashes: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])

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

    def template_hash(self, workload: Object) -> str:
        """Return the hash of a workload's pod template, which is computed once for each of its generations."""
        key = workload["metadata"]["uid"], workload["metadata"]["generation"]
        if key not in self._hashes:
            self._hashes[key] = template_hash(workload["spec"]["template"])
        return self._hashes[key]

    def suffix(self, length: int = 5) -> str:
        """Return random characters as in a pod's name."""
        return "".join(self.rng.choice(_SAFE) for _ in range(length))


def template_hash(template: Mapping[str, Any]) -> str:
    """Return the pod-template-hash of a Deployment's template: eight to ten characters without vowels."""
    digits = str(zlib.crc32(json.dumps(template, sort_keys=True).encode())).rjust(8, "0")
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in digits)
