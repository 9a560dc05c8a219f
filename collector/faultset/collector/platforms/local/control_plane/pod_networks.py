"""Impairments of the network of pods, which the relay makes."""

from __future__ import annotations

import time

from faultset.collector.platforms.api.impairments import Delay, Impairment, Loss, Partition
from faultset.collector.platforms.local.control_plane.control_plane import ControlPlane
from faultset.collector.platforms.local.relay.messages import ReadCounters, ReadDisturbed

_COUNTED: dict[type[Impairment], tuple[str, ...]] = {
    Delay: ("transmit_packets",),
    Loss: ("transmit_packets_dropped",),
    Partition: ("transmit_packets_dropped", "receive_packets_dropped"),
}


class PodNetworks:
    """The networks of all pods, as far as they can be impaired."""

    def __init__(self, plane: ControlPlane):
        self._plane = plane

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair all that the pod sends, in place of any impairment before."""
        with self._plane.lock:
            self._plane.impairments[pod] = impairment
            self._plane.packets_before[pod] = self._counted(pod, impairment)
            self._plane.acts_from_s[pod] = time.monotonic() + impairment.delay_s
            self._plane.publish_routes()

    def lift(self, pod: str) -> None:
        """End the impairment of a pod; nothing happens when there is none."""
        with self._plane.lock:
            self._plane.impairments.pop(pod, None)
            self._plane.publish_routes()

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets have been lost or delayed since the impairment began; 0 without one."""
        with self._plane.lock:
            impairment = self._plane.impairments.get(pod)
            if impairment is None:
                return 0
            counted = self._counted(pod, impairment)
            if time.monotonic() < self._plane.acts_from_s.get(pod, 0.0):
                self._plane.packets_before[pod] = counted
            return max(0, counted - self._plane.packets_before[pod])

    def _counted(self, pod: str, impairment: Impairment) -> int:
        if type(impairment) not in _COUNTED:
            return self._plane.call("relay", ReadDisturbed()).get(pod, 0)
        counters = self._plane.call("relay", ReadCounters()).get(pod)
        return sum(getattr(counters, name) for name in _COUNTED[type(impairment)]) if counters else 0
