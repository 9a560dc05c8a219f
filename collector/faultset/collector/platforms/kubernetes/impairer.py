"""Impair and kill pods on a cluster through the agent program."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from faultset.collector.platforms.impairments import Impairment, encode_impairment
from faultset.collector.platforms.kubernetes.client import Api, NotFound, run_in_pod
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

RENEW_S = 8.0
PROGRAM = ("python3", "-m", "faultset.collector.agent.program")
EPHEMERAL = "network"
"""Name of the container that impairs a pod from inside; the recorded telemetry omits it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NodeCapabilities:
    """Capabilities that the agents of all nodes have.

    Attributes
    ----------
    reasons
        Reason for each missing capability, by name.
    """

    loss: bool
    partition: bool
    delay: bool
    kill: bool
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The reasons of all missing capabilities; empty if there are none."""
        return "; ".join(f"{verb}: {reason}" for verb, reason in self.reasons.items())


def intersect_capabilities(responses: Iterable[Mapping[str, Any]]) -> NodeCapabilities:
    """Return the capabilities that all nodes have.

    Parameters
    ----------
    responses
        The response of each node's agent to the verb `capabilities`.
    """
    nodes = list(responses)
    verbs = ("loss", "partition", "delay", "kill")
    reasons = {verb: reason for node in nodes for verb, reason in node.get("reasons", {}).items()}
    supported = {verb: bool(nodes) and all(node.get(verb, False) for node in nodes) for verb in verbs}
    return NodeCapabilities(
        **supported,
        reasons={verb: reasons.get(verb, "no node agent is running") for verb in verbs if not supported[verb]},
    )


class Impairer(Protocol):
    """A mechanism that impairs and kills pods: agents on the nodes, a container in each pod, or Chaos Mesh."""

    def start(self) -> None:
        """Start renewing leases."""
        ...

    def close(self) -> None:
        """Stop renewing leases, which then expire; may be called twice."""
        ...

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, replacing an earlier impairment."""
        ...

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, given by name or uid, if it has one."""
        ...

    def impaired_packets(self, pod: Object) -> int:
        """Return how many packets have been impaired so far; 0 without an impairment."""
        ...

    def kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container."""
        ...


class Renewal:
    """Calls a function every few seconds in a thread, and continues after failures."""

    def __init__(self, renew: Callable[[], None]):
        self._renew = renew
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it is already running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread; may be called twice."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * RENEW_S)

    def _run(self) -> None:
        while not self._closed.wait(RENEW_S):
            try:
                self._renew()
            except PlatformError as error:
                logger.warning("a lease was not renewed: %s", error)


class ProgramImpairer(ABC):
    """Impairs pods by running the program of `faultset.collector.agent` with exec.

    Impairments end with this process: leases expire half a minute after the last renewal.

    Parameters
    ----------
    namespace
        Namespace of the pods in which the program runs.
    """

    container: ClassVar[str]
    """Name of the container in which the program runs."""

    def __init__(self, api: Api, namespace: str):
        self._api, self._namespace = api, namespace
        self._impaired: dict[str, tuple[Object, Impairment]] = {}
        self._lock = threading.RLock()
        self._renewal = Renewal(self.renew)

    @abstractmethod
    def _send_request(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        """Send a request to the program responsible for a pod; raise NotFound if the pod is gone."""

    def start(self) -> None:
        """Start renewing leases."""
        self._renewal.start()

    def close(self) -> None:
        """Stop renewing leases; may be called twice."""
        self._renewal.close()

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, replacing an earlier impairment; raise PlatformError if it fails."""
        with self._lock:
            self._set(pod, impairment)
            self._impaired[get_uid(pod)] = (pod, impairment)

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, given by name or uid; do nothing if the pod or impairment is gone."""
        with self._lock:
            for uid, (target, _) in [*self._impaired.items()]:
                if pod in (uid, target["metadata"]["name"]):
                    with contextlib.suppress(NotFound):
                        self._send_request(target, "lift", pod=uid)
                    del self._impaired[uid]

    def impaired_packets(self, pod: Object) -> int:
        """Return how many packets have been impaired so far; 0 without an impairment."""
        return self._send_request(pod, "packets", pod=get_uid(pod))["packets"]

    def renew(self) -> None:
        """Renew all leases once; restore impairments that the program has lost."""
        with self._lock:
            for uid, (pod, impairment) in [*self._impaired.items()]:
                if not self._send_request(pod, "renew", brief=True, pod=uid)["renewed"]:
                    self._set(pod, impairment, brief=True)

    def _set(self, pod: Object, impairment: Impairment, *, brief: bool = False) -> None:
        self._send_request(pod, "impair", brief=brief, pod=get_uid(pod), impairment=encode_impairment(impairment))

    def _run(self, name: str, description: str, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run the program in a pod and return its response; errors start with `description`."""
        text = run_in_pod(self._api, self._namespace, name, self.container, [*PROGRAM, verb, json.dumps(arguments)])
        try:
            response = json.loads(text)
        except ValueError:
            raise PlatformError(
                f"{description} sent an invalid response to {verb}; use an image of this version of faultset"
            ) from None
        if "error" in response:
            raise Refused(f"{description} could not {verb}: {response['error']}")
        return response


class Refused(PlatformError):
    """The program refused a request."""


def get_uid(pod: Object) -> str:
    """Return the uid of a pod."""
    return pod["metadata"]["uid"]
