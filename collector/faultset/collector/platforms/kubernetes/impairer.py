"""What a cluster lets us do to the network and the processes of pods."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from faultset.collector.platforms.impairments import Impairment, impairment_record
from faultset.collector.platforms.kubernetes.client import Api, NotFound, run_in_pod
from faultset.collector.platforms.objects import Object
from faultset.core.errors import PlatformError

RENEW_S = 8.0
PROGRAM = ("python3", "-m", "faultset.collector.agent.program")
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


class ProgramImpairer(ABC):
    """Impairs pods by the program of `faultset.collector.agent`, which is asked by exec.

    What is impaired stays so only while this process lives: leases end half a minute after the last renewal.

    Parameters
    ----------
    namespace
        Of the pods in which the program runs.
    """

    container: ClassVar[str]
    """Name of the container in which the program runs."""

    def __init__(self, api: Api, namespace: str):
        self._api, self._namespace = api, namespace
        self._impaired: dict[str, tuple[Object, Impairment]] = {}
        self._lock = threading.RLock()
        self._renewal = Renewal(self.renew)

    @abstractmethod
    def _ask(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        """Return the answer of the program that can act on a pod; raise NotFound when it is gone."""

    def start(self) -> None:
        """Begin to renew leases."""
        self._renewal.start()

    def close(self) -> None:
        """Renew no more leases; may be called twice."""
        self._renewal.close()

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair all that the pod sends, in place of any impairment before; raise PlatformError when it fails."""
        with self._lock:
            self._set(pod, impairment)
            self._impaired[uid_of(pod)] = (pod, impairment)

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, by name or uid; nothing happens when there is none, or no pod any more."""
        with self._lock:
            for uid, (target, _) in [*self._impaired.items()]:
                if pod in (uid, target["metadata"]["name"]):
                    with contextlib.suppress(NotFound):
                        self._ask(target, "lift", pod=uid)
                    del self._impaired[uid]

    def impaired_packets(self, pod: Object) -> int:
        """Return how many packets the impairment has met so far; 0 without one."""
        return self._ask(pod, "packets", pod=uid_of(pod))["packets"]

    def renew(self) -> None:
        """Renew all leases once; what the program has lost is set again."""
        with self._lock:
            for uid, (pod, impairment) in [*self._impaired.items()]:
                if not self._ask(pod, "renew", brief=True, pod=uid)["renewed"]:
                    self._set(pod, impairment, brief=True)

    def _set(self, pod: Object, impairment: Impairment, *, brief: bool = False) -> None:
        self._ask(pod, "impair", brief=brief, pod=uid_of(pod), impairment=impairment_record(impairment))

    def _run(self, name: str, where: str, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run the program in a pod and return its answer; `where` names it in errors."""
        text = run_in_pod(self._api, self._namespace, name, self.container, [*PROGRAM, verb, json.dumps(arguments)])
        try:
            answer = json.loads(text)
        except ValueError:
            raise PlatformError(
                f"{where} gave no answer to {verb} that can be read; use an image of this version of faultset"
            ) from None
        if "error" in answer:
            raise Refused(f"{where} could not {verb}: {answer['error']}")
        return answer


class Refused(PlatformError):
    """The program was asked and did not do it."""


def uid_of(pod: Object) -> str:
    """Return the uid of a pod."""
    return pod["metadata"]["uid"]
