"""One incident of a running recording: inject, confirm, judge, undo, wait until the application is healthy."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from faultset.collector.episodes.fault_steps import FaultSteps, find_recovery_problem
from faultset.collector.episodes.recording import LiveRecording, build_label, reason_to_discard
from faultset.collector.episodes.records import EpisodeClock, EpisodeRecord, FaultRecord, ViewBounds
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.timeline import PlannedIncident
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.impairments import draw_course
from faultset.collector.platforms.journal import Journal
from faultset.collector.spec.routes import services_reached
from faultset.collector.verdicts.client_requests import MIN_HEALTHY_SHARE, ComparisonWindows
from faultset.collector.verdicts.latent import threshold_for
from faultset.collector.verdicts.verdict import UNJUDGED, judge_episode
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import INCIDENTS

State = Literal["waiting", "active", "recovering", "over"]

_log = logging.getLogger(__name__)


class LiveIncident:
    """An incident and its state."""

    def __init__(
        self,
        planned: PlannedIncident,
        plan: Plan,
        platform: EpisodePlatform,
        journal: Journal,
        *,
        folder: Path,
        clock: EpisodeClock,
        store_servers: Mapping[str, str],
    ):
        self.planned, self._platform, self._journal = planned, platform, journal
        self._folder, self._clock = folder, clock
        name = f"{plan.episode}/{planned.at_s}/{planned.fault}/{planned.target}"
        self.id = hashlib.sha256(name.encode()).hexdigest()[:12]
        """Id that does not reveal the fault."""
        self.state: State = "waiting"
        self.problem = ""
        """Why the incident is not scored; empty if it is."""
        spec, rng = get_fault(planned.fault), np.random.default_rng([planned.seed, 1])
        course = None if plan.schedule is None else draw_course(plan.schedule, planned.length_s, rng)
        fault = FaultRecord(
            spec=spec, target=planned.target, rng=np.random.default_rng([planned.seed, 2]), course=course
        )
        plan = replace(
            plan,
            episode=self.id,
            fault=planned.fault,
            target=planned.target,
            no_fault_kind=None,
            seed=planned.seed,
            recording=None,
        )
        self.record = EpisodeRecord(plan=plan, faults=(fault,), clock=clock, store_servers=store_servers)
        """Times, parameters and evidence."""
        self._steps = FaultSteps(self.record, platform, clock)
        self._judgement = UNJUDGED
        self._evidence_count = 0

    @property
    def title(self) -> str:
        return f"{self.planned.fault} on {self.planned.target}"

    @property
    def undo_at_ns(self) -> int:
        return (self.record.inject_start_ns or 0) + round(self.planned.length_s * SECOND_NS)

    def inject(self, onset_ns: int) -> None:
        """Inject the fault, for the first time or again."""
        if self.state == "waiting":
            _log.info("incident: %s", self.title)
        self.state = "active"
        with self._journal.scope(self.id):
            self._steps.inject(onset_ns)

    def check(self) -> None:
        """Confirm the fault; if it is repeated and due, inject it again first."""
        fault = self.record.faults[0]
        if self.record.inject_start_ns is not None and fault.is_due(self._clock.time_ns(), self.record.inject_start_ns):
            self.inject(self.record.inject_start_ns)
        self._steps.confirm()

    def undo(self) -> None:
        """Undo only the fault of this incident."""
        self.record.recover_start_ns = self.record.recover_start_ns or self._clock.time_ns()
        self._steps.confirm()
        for fault in self.record.unconfirmed:
            self.record.add_evidence("injection", fault.target, False, "the check never detected the fault")
            self.problem = self.problem or "the fault was not confirmed"
        self._platform.undo(self.id)
        self.record.recover_done_ns = self._clock.time_ns()
        self.state = "recovering"

    def judge(self, healthy_since_ns: int, *, is_busy: bool) -> None:
        """Judge whether clients or the target's telemetry show the fault, given the start of the healthy time before
        it.

        An incident that overlaps others, or follows too short a healthy time, is not judged.
        """
        onset_ns, plan = self.record.inject_start_ns, self.record.plan
        assert onset_ns is not None
        start_ns = max(healthy_since_ns, onset_ns - round(plan.phases.baseline_s * SECOND_NS))
        end_ns = self.record.recover_start_ns or self._clock.time_ns()
        windows = ComparisonWindows.around(onset_ns, start_ns=start_ns, end_ns=end_ns)
        bounds = ViewBounds(start_ns=start_ns, reference_end_ns=windows.reference_end_ns, end_ns=end_ns)
        min_healthy_ns = MIN_HEALTHY_SHARE * plan.phases.baseline_s * SECOND_NS
        if onset_ns - start_ns < min_healthy_ns or self.planned.overlaps:
            return
        live = LiveRecording(self.record, self._platform, lambda end_ns: replace(bounds, end_ns=end_ns), self._folder)
        try:
            self._judgement = judgement = judge_episode(
                live.up_to(bounds.end_ns),
                plan,
                onset_ns=onset_ns,
                limit=threshold_for(plan.app, plan.platform, plan.step_s, plan.traffic.name),
                services_reached=services_reached(self._platform.app),
            )
        finally:
            live.close()
        self.record.evidence += judgement.evidence
        self.problem = self.problem or reason_to_discard(judgement, is_busy=is_busy)

    def check_recovery(self) -> bool:
        """Return whether the application is healthy again; if so, end the incident."""
        undo_done_ns = self.record.recover_done_ns
        assert undo_done_ns is not None
        now_ns = self._clock.time_ns()
        if find_recovery_problem(self._platform, undo_done_ns, now_ns, self.record.plan.min_rate_rps) is not None:
            return False
        self.record.healthy_again_ns = now_ns
        self.record.add_evidence("recovery", self.planned.target, True, "ready, and client requests succeed")
        self.state = "over"
        return True

    def give_up(self, reason: str) -> None:
        """Record in the problem and the evidence why the incident is not scored."""
        self.problem = self.problem or reason
        self.record.add_evidence("injection", self.planned.target, False, reason)

    def row(self) -> dict[str, Any]:
        """Return the row of the incident in its current state."""
        assert self.record.inject_start_ns is not None
        bounds = ViewBounds(start_ns=0, reference_end_ns=0, end_ns=self.record.recover_start_ns or 0)
        label = build_label(self.record, bounds, self._platform, self._judgement)
        return {"incident": self.id} | {name: label[name] for name in INCIDENTS.names if name in label}

    def new_evidence(self) -> list[dict[str, Any]]:
        rows = [{"incident": self.id, **row} for row in self.record.evidence[self._evidence_count :]]
        self._evidence_count = len(self.record.evidence)
        return rows
