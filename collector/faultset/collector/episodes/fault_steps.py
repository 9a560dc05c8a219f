"""The steps of a fault in an episode or an incident: observe, inject, confirm, and check the recovery."""

from __future__ import annotations

import copy
import logging

from faultset.collector.episodes.health import health_problem, unready_workloads
from faultset.collector.episodes.records import EpisodeClock, EpisodeRecord, FaultRecord
from faultset.collector.platforms.base import EpisodePlatform
from faultset.core.times import SECOND_NS

RECOVERY_TIMEOUT_S = 120.0
RECOVERY_WINDOW_S = 4.0

_log = logging.getLogger(__name__)


class FaultSteps:
    """Injects and confirms the faults of a record.

    Parameters
    ----------
    record
        Record to which times, parameters and evidence are added.
    """

    def __init__(self, record: EpisodeRecord, platform: EpisodePlatform, clock: EpisodeClock):
        self._record, self._platform, self._clock = record, platform, clock

    def observe(self) -> None:
        """Observe the state before the first injection, and record when the injection starts."""
        for fault in self._record.faults:
            if not fault.injections:
                fault.before = fault.spec.state_before(self._platform, fault.target)
        self._record.inject_start_ns = self._record.inject_start_ns or self._clock.time_ns()

    def inject(self, onset_ns: int) -> None:
        """Inject the faults that are due, for the first time or again."""
        self.observe()
        for fault in self._record.faults:
            if fault.is_due(self._clock.time_ns(), onset_ns):
                self._inject(fault)
        if self._record.inject_done_ns is None:
            self._record.inject_done_ns = self._clock.time_ns()
            _log.info("injected: %s", self._record.plan.title)
        self.confirm()

    def _inject(self, fault: FaultRecord) -> None:
        fault.inject_start_ns = fault.inject_start_ns or self._clock.time_ns()
        # repetitions draw the same values; the label describes the first injection
        parameters = fault.spec.inject_with(self._platform, fault.target, copy.deepcopy(fault.rng), fault.course)
        fault.parameters = fault.parameters or parameters
        fault.injections += 1
        fault.inject_done_ns = fault.inject_done_ns or self._clock.time_ns()

    def confirm(self) -> None:
        """Check whether faults that are not yet confirmed are in effect."""
        for fault in self._record.unconfirmed:
            if not fault.injections:
                continue
            evidence = fault.spec.check(self._platform, fault.target, fault.parameters, fault.before)
            if evidence:
                fault.effective_ns = self._clock.time_ns()
                self._record.add_evidence("injection", fault.target, True, evidence)
                _log.info("%s on %s is in effect: %s", fault.spec.name, fault.target, evidence)


def find_recovery_problem(platform: EpisodePlatform, undo_done_ns: int, now_ns: int, min_rate_rps: float) -> str | None:
    """Return why the application has not recovered since the undo; None if it has."""
    window_ns = int(RECOVERY_WINDOW_S * SECOND_NS)
    problem = unready_workloads(platform)
    if problem or now_ns - undo_done_ns < window_ns:
        return problem or "too few requests"
    return health_problem(platform, max(now_ns - window_ns, undo_done_ns), now_ns, min_rate_rps, now_ns=now_ns) or None
