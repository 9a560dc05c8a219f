"""One attempt to repair an application: the repair is carried out, and the oracle judges until it is satisfied."""

from __future__ import annotations

from faultset.collector.mitigation.kubectl.front import Kubectl
from faultset.collector.mitigation.kubectl.session import KubectlSession
from faultset.collector.mitigation.live_fault import LiveFault
from faultset.collector.mitigation.messages import CommandResult, MitigationResult, OraclePartResult, RepairOrder
from faultset.collector.mitigation.oracle import HealthyState, MitigationOracle
from faultset.collector.platforms.api.platform import Platform
from faultset.core.times import SECOND_NS

POLL_S = 1.0
SETTLE_S = 2.0
"""How long before the present the window of requests ends, because later ones may still be under way."""


class MitigationAttempt:
    """Carries out a repair order.

    Parameters
    ----------
    order
        What is done, and how it is judged.
    platform
        Where the application runs.
    """

    def __init__(self, order: RepairOrder, platform: Platform):
        self._order, self._platform = order, platform
        self._healthy: HealthyState | None = None

    def note_healthy(self) -> None:
        """Note the application's state; called just before the injection."""
        self._healthy = HealthyState.of(self._platform)

    def run(self, live: LiveFault) -> MitigationResult:
        """Repair, and judge until the application has stayed healthy or time is up."""
        assert self._healthy is not None, "the healthy state is noted before the injection"
        oracle = MitigationOracle(
            self._platform,
            live.fault,
            live.target,
            live.parameters,
            before=live.before,
            healthy=self._healthy,
            unhealthy_requests=live.unhealthy_requests,
        )
        began_ns = live.clock()
        commands = self._repair(live)
        parts, healthy_ns = self._judge(oracle, live, began_ns)
        return MitigationResult(
            repair=self._order.name,
            success=healthy_ns is not None,
            parts=parts,
            commands=commands,
            manifest=live.manifest,
            mitigated_s=None if healthy_ns is None else _seconds(healthy_ns - live.onset_ns),
            repair_s=None if healthy_ns is None else _seconds(healthy_ns - began_ns),
        )

    def _repair(self, live: LiveFault) -> tuple[CommandResult, ...]:
        if self._order.undoes:
            live.undo()
            return ()
        kubectl = Kubectl(self._session(live))
        return tuple(kubectl.run(line) for line in self._order.commands)

    def _judge(
        self, oracle: MitigationOracle, live: LiveFault, began_ns: int
    ) -> tuple[tuple[OraclePartResult, ...], int | None]:
        """Return the last answers, and since when all have been right; None when they never were for long enough."""
        deadline_ns = began_ns + round(self._order.within_s * SECOND_NS)
        sustain_ns = round(self._order.sustain_s * SECOND_NS)
        oracle.begin_window()
        start_ns = live.clock()
        while True:
            live.sleep(POLL_S)
            now_ns = live.clock()
            end_ns = now_ns - round(SETTLE_S * SECOND_NS)
            parts = oracle.read(min(start_ns, end_ns - SECOND_NS), end_ns)
            wrong = {part.part for part in parts if not part.ok}
            if not wrong and end_ns - start_ns >= sustain_ns:
                return parts, start_ns
            if wrong:
                oracle.begin_window()
                # what clients say is known up to the end of the window, everything else up to now
                start_ns = end_ns if wrong == {"requests"} else now_ns
            if start_ns > deadline_ns:
                return parts, None

    def _session(self, live: LiveFault) -> KubectlSession:
        namespaces = {self._platform.app.name}
        for found in self._platform.list("Deployment"):
            namespaces.add(found["metadata"].get("namespace") or self._platform.app.name)
        assert self._healthy is not None
        return KubectlSession(
            platform=self._platform,
            namespaces=frozenset(namespaces),
            known=frozenset(self._healthy.desired.objects),
            folder=self._order.folder,
            clock=live.clock,
            sleep=live.sleep,
        )


def _seconds(length_ns: int) -> float:
    return round(length_ns / SECOND_NS, 3)
