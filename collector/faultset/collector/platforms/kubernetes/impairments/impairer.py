"""What a cluster lets us do to the network and the processes of pods."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from faultset.collector.platforms.api.impairments import Impairment
from faultset.collector.platforms.api.objects import Object
from faultset.core.errors import PlatformError

RENEW_S = 8.0
EPHEMERAL = "network"
"""Name of the container that impairs a pod from inside; nothing about it is in a view."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NodeCapabilities:
    """What can be done to pods, on every node.

    Attributes
    ----------
    reasons
        Why the rest cannot be done.
    """

    loss: bool
    partition: bool
    delay: bool
    kill: bool
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Say why something cannot be done; empty when all can."""
        return "; ".join(f"{act}: {why}" for act, why in self.reasons.items())


def common(answers: Iterable[Mapping[str, Any]]) -> NodeCapabilities:
    """Return what all of several nodes can do.

    Parameters
    ----------
    answers
        Each node's loss, partition, delay and kill, and `reasons` for what it cannot do.
    """
    found = list(answers)
    acts = ("loss", "partition", "delay", "kill")
    reasons = {act: why for answer in found for act, why in answer.get("reasons", {}).items()}
    can = {act: bool(found) and all(answer.get(act, False) for answer in found) for act in acts}
    return NodeCapabilities(
        **can, reasons={act: reasons.get(act, "no node agent runs") for act in acts if not can[act]}
    )


class Impairer(Protocol):
    """What impairs and kills pods: an agent on each node, a container in each pod, or Chaos Mesh."""

    def start(self) -> None:
        """Begin to renew leases."""
        ...

    def close(self) -> None:
        """Renew no more leases; they expire by themselves. May be called twice."""
        ...

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair all that the pod sends, in place of any impairment before."""
        ...

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, by name or uid; nothing happens when there is none."""
        ...

    def impaired_packets(self, pod: Object) -> int:
        """Return how many packets the impairment has met so far; 0 without one."""
        ...

    def kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container."""
        ...


class Renewal:
    """Calls a function every few seconds in a thread of its own, whatever happens to the calls."""

    def __init__(self, renew: Callable[[], None], every_s: float = RENEW_S):
        self._renew, self._every_s = renew, every_s
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; nothing happens when it runs already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; may be called twice."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * self._every_s)

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self._renew()
            except PlatformError as error:
                logger.warning("a lease was not renewed: %s", error)


def uid_of(pod: Object) -> str:
    """Return the uid of a pod."""
    return pod["metadata"]["uid"]
