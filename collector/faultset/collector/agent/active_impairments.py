"""The impairments on one node: set under a lease, renewed, lifted, and taken over from an agent that died."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.impairments import NetworkImpairment
from faultset.collector.agent.leases import Leases
from faultset.collector.agent.networks import Network
from faultset.collector.agent.pods import Pods
from faultset.collector.agent.protocol import LEASE_S

logger = logging.getLogger(__name__)

TICK_S = 0.5


class ActiveImpairments:
    """Holds the network namespaces that are impaired at this moment, each by an open file.

    An open namespace can be reached after the last process of its pod, and is never that of another pod.

    Parameters
    ----------
    network
        Gives access to an open namespace.
    """

    def __init__(self, pods: Pods, leases: Leases, network: Callable[[int], Network]):
        self._pods, self._leases, self._network = pods, leases, network
        self._held: dict[str, int] = {}
        self._lock = threading.RLock()

    def impair(self, uid: str, impairment: NetworkImpairment, lease_s: float) -> None:
        """Impair a pod until its lease runs out; in place of any impairment before.

        Raises
        ------
        AgentError
            The pod may not be touched, or the kernel does not take the rules; nothing is left behind then.
        """
        with self._lock:
            descriptor = self._pods.network_of(uid)
            self._let_go(uid)
            self._held[uid] = descriptor
            try:
                self._leases.grant(uid, lease_s)
                self._network(descriptor).impair(impairment)
            except AgentError:
                self.lift(uid)
                raise

    def renew(self, uids: Iterable[str]) -> list[str]:
        """Prolong leases; return the pods that have none."""
        with self._lock:
            return self._leases.renew(uids)

    def lift(self, uid: str) -> None:
        """End the impairment of a pod; nothing happens when there is none.

        Raises
        ------
        AgentError
            The rules could not be removed; it is tried again until they are.
        """
        with self._lock:
            descriptor = self._held.get(uid)
            if descriptor is not None:
                try:
                    self._network(descriptor).lift()
                except AgentError:
                    self._leases.end(uid)
                    self._leases.grant(uid, TICK_S)
                    raise
            self._leases.end(uid)
            self._let_go(uid)

    def packets(self, uid: str) -> int:
        """Return how many packets of a pod its impairment has met so far; 0 without one."""
        with self._lock:
            descriptor = self._held.get(uid)
            return 0 if descriptor is None else self._network(descriptor).packets()

    def pods(self) -> list[str]:
        """Return the uids of pods that are impaired."""
        with self._lock:
            return list(self._held)

    def lift_expired(self) -> None:
        """Lift what nobody has renewed."""
        with self._lock:
            self._lift_each(self._leases.expired())

    def lift_all(self) -> None:
        """Lift everything."""
        with self._lock:
            self._lift_each(list(self._held))

    def take_over(self, lease_s: float = LEASE_S) -> list[str]:
        """Find what an agent before this one has left in our pods, and give it a last lease; return the uids."""
        found = []
        with self._lock:
            uids = {one.place.pod_uid for one in self._pods.processes()} & self._pods.names().keys()
            for uid in sorted(uids - self._held.keys()):
                with contextlib.suppress(AgentError):
                    descriptor = self._pods.network_of(uid)
                    if self._network(descriptor).is_marked():
                        self._held[uid] = descriptor
                        self._leases.grant(uid, lease_s)
                        found.append(uid)
                    else:
                        os.close(descriptor)
        return found

    def _lift_each(self, uids: list[str]) -> None:
        for uid in uids:
            try:
                self.lift(uid)
                logger.info("lifted what impaired pod %s", uid)
            except AgentError as error:
                logger.warning("pod %s: %s", uid, error)

    def _let_go(self, uid: str) -> None:
        descriptor = self._held.pop(uid, None)
        if descriptor is not None:
            os.close(descriptor)
