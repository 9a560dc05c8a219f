"""Impairments of one node's pods, each lifted when its lease expires."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable

from faultset.collector.agent.impairments import NetworkImpairment
from faultset.collector.agent.networks import Network
from faultset.collector.agent.pods import Pods
from faultset.collector.agent.protocol import LEASE_S, AgentError

MAX_LEASE_S = 120.0


class Leases:
    """Leases by pod uid.

    Parameters
    ----------
    clock
        Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._ends: dict[str, tuple[float, float]] = {}

    def grant(self, uid: str, length_s: float) -> None:
        """Start or restart a lease; raise AgentError if its length is invalid."""
        if isinstance(length_s, bool) or not isinstance(length_s, int | float) or not 0 < length_s <= MAX_LEASE_S:
            raise AgentError(f"a lease must last more than 0 and at most {MAX_LEASE_S:g} s, got {length_s!r}")
        self._ends[uid] = (self._clock() + length_s, length_s)

    def renew(self, uids: Iterable[str]) -> list[str]:
        """Restart the leases of pods, even expired ones; return the pods without a lease."""
        unknown_uids = []
        for uid in uids:
            if uid in self._ends:
                self.grant(uid, self._ends[uid][1])
            else:
                unknown_uids.append(uid)
        return unknown_uids

    def end(self, uid: str) -> None:
        """Remove a pod's lease, if it has one."""
        self._ends.pop(uid, None)

    def expired(self) -> list[str]:
        """Return the pods whose lease has expired."""
        now = self._clock()
        return [uid for uid, (end, _) in self._ends.items() if end <= now]


logger = logging.getLogger(__name__)

TICK_S = 0.5


class ActiveImpairments:
    """The impaired pods of one node, each with an open file of its network namespace.

    The open file keeps the namespace reachable after the pod's last process has ended, and always refers to the same
    pod.

    Parameters
    ----------
    network
        Returns the network of an open namespace.
    """

    def __init__(self, pods: Pods, leases: Leases, network: Callable[[int], Network]):
        self._pods, self._leases, self._network = pods, leases, network
        self._descriptors: dict[str, int] = {}
        self._lock = threading.RLock()

    def impair(self, uid: str, impairment: NetworkImpairment, lease_s: float) -> None:
        """Impair a pod until its lease expires; replaces an earlier impairment.

        Raises
        ------
        AgentError
            The pod belongs to another namespace, or the kernel rejects the rules. No rule is left behind.
        """
        with self._lock:
            descriptor = self._pods.open_network(uid)
            self._close(uid)
            self._descriptors[uid] = descriptor
            try:
                self._leases.grant(uid, lease_s)
                self._network(descriptor).impair(impairment)
            except AgentError:
                self.lift(uid)
                raise

    def renew(self, uids: Iterable[str]) -> list[str]:
        """Renew the leases of pods; return the pods without a lease."""
        with self._lock:
            return self._leases.renew(uids)

    def lift(self, uid: str) -> None:
        """End the impairment of a pod, if it has one.

        Raises
        ------
        AgentError
            The rules could not be removed; `lift_expired` retries.
        """
        with self._lock:
            descriptor = self._descriptors.get(uid)
            if descriptor is not None:
                try:
                    self._network(descriptor).lift()
                except AgentError:
                    self._leases.end(uid)
                    self._leases.grant(uid, TICK_S)
                    raise
            self._leases.end(uid)
            self._close(uid)

    def packets(self, uid: str) -> int:
        """Return how many packets of a pod have been impaired so far."""
        with self._lock:
            descriptor = self._descriptors.get(uid)
            return 0 if descriptor is None else self._network(descriptor).packets()

    def pods(self) -> list[str]:
        """Return the uids of impaired pods."""
        with self._lock:
            return list(self._descriptors)

    def lift_expired(self) -> None:
        """Lift impairments whose lease has expired."""
        with self._lock:
            self._lift_each(self._leases.expired())

    def lift_all(self) -> None:
        """Lift all impairments."""
        with self._lock:
            self._lift_each(list(self._descriptors))

    def adopt(self, lease_s: float = LEASE_S) -> list[str]:
        """Grant a lease to pods that an earlier agent left impaired; return their uids."""
        adopted = []
        with self._lock:
            uids = {process.owner.pod_uid for process in self._pods.processes()} & self._pods.names().keys()
            for uid in sorted(uids - self._descriptors.keys()):
                with contextlib.suppress(AgentError):
                    descriptor = self._pods.open_network(uid)
                    if self._network(descriptor).is_marked():
                        self._descriptors[uid] = descriptor
                        self._leases.grant(uid, lease_s)
                        adopted.append(uid)
                    else:
                        os.close(descriptor)
        return adopted

    def _lift_each(self, uids: list[str]) -> None:
        for uid in uids:
            try:
                self.lift(uid)
                logger.info("lifted the impairment of pod %s", uid)
            except AgentError as error:
                logger.warning("pod %s: %s", uid, error)

    def _close(self, uid: str) -> None:
        descriptor = self._descriptors.pop(uid, None)
        if descriptor is not None:
            os.close(descriptor)
