"""A node agent that remembers what is asked of it and touches no network and no process."""

from __future__ import annotations

from typing import cast

from faultset.collector.agent.networks import AgentError, NetworkImpairment
from faultset.collector.agent.pods import Pods
from faultset.collector.agent.program import ActiveImpairments, SchedulingDelay, Verbs

GEO = "a570e514-5f17-4e87-a049-2fa201289d9e"


class RecordingImpairments:
    """Remembers what is asked of it, in place of a node's network."""

    def __init__(self) -> None:
        self.impaired: dict[str, tuple[NetworkImpairment, float]] = {}
        self.renewed: list[str] = []

    def impair(self, uid: str, impairment: NetworkImpairment, lease_s: float) -> None:
        if uid != GEO:
            raise AgentError(f"pod {uid} does not belong to namespace hotel-1 on this node")
        self.impaired[uid] = (impairment, lease_s)

    def renew(self, uid: str) -> bool:
        self.renewed.append(uid)
        return uid in self.impaired

    def lift(self, uid: str) -> None:
        self.impaired.pop(uid, None)

    def packets(self, uid: str) -> int:
        return 42 if uid in self.impaired else 0

    def pods(self) -> list[str]:
        return list(self.impaired)


class RecordingPods(Pods):
    """Remembers which containers it was to kill."""

    def __init__(self) -> None:
        super().__init__("hotel-1")
        self.killed: list[tuple[str, str]] = []

    def names(self) -> dict[str, str]:
        return {GEO: "geo-1"}

    def kill(self, uid: str, container_id: str) -> int:
        self.killed.append((uid, container_id))
        return 4711


class Agent:
    """An agent with made-up hands."""

    def __init__(self) -> None:
        self.held, self.pods, self.delay = RecordingImpairments(), RecordingPods(), SchedulingDelay()
        unsupported = {"delay": "the kernel does not support netem"}
        self.verbs = Verbs(self.pods, cast(ActiveImpairments, self.held), unsupported, self.delay)
