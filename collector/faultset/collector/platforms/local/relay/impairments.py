"""Disturbances of a pod's network, which the relay makes."""

from __future__ import annotations

from faultset.collector.platforms.api.impairments import Impairment, impairment_record
from faultset.collector.platforms.local.control_plane.control_plane import ControlPlane

_COUNTED = {
    "delay": ("transmit_packets",),
    "loss": ("transmit_packets_dropped",),
    "partition": ("transmit_packets_dropped", "receive_packets_dropped"),
}


class Network:
    """The network of all pods, as far as it can be disturbed."""

    def __init__(self, plane: ControlPlane):
        self._plane = plane

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Disturb all that the pod sends, in place of any disturbance before."""
        made = impairment_record(impairment)
        with self._plane.lock:
            self._plane.impairments[pod] = made
            self._plane.packets_before[pod] = self._counted(pod, made["kind"])
            self._plane.publish_routes()

    def lift(self, pod: str) -> None:
        """End the disturbance of a pod; nothing happens when there is none."""
        with self._plane.lock:
            self._plane.impairments.pop(pod, None)
            self._plane.publish_routes()

    def disturbed_packets(self, pod: str) -> int:
        """Return how many packets have been lost or delayed since the disturbance began; 0 without one."""
        with self._plane.lock:
            impairment = self._plane.impairments.get(pod)
            if impairment is None:
                return 0
            return max(0, self._counted(pod, impairment["kind"]) - self._plane.packets_before[pod])

    def _counted(self, pod: str, kind: str) -> int:
        counters = self._plane.call("relay", "stats").get(pod, {})
        return sum(counters.get(name, 0) for name in _COUNTED[kind])
