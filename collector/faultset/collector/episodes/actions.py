"""Actions of the state machine's commands: the steps of one episode on its platform."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from faultset.collector.episodes.fault_steps import (
    RECOVERY_TIMEOUT_S,
    FaultSteps,
    RepairWaits,
    build_live_fault,
    find_recovery_problem,
)
from faultset.collector.episodes.harmless_changes import DecoySchedule, age_application, disturb, imitate_fault
from faultset.collector.episodes.health import (
    SETTLE_NS,
    EpisodeWatchdog,
    HostTooBusy,
    UnexplainedRequestChange,
    health_problem,
    requests_between,
    unready_workloads,
)
from faultset.collector.episodes.host_pressure import CpuPressure
from faultset.collector.episodes.recording import LiveRecording, read_early, write_episode
from faultset.collector.episodes.records import SYSTEM_CLOCK, EpisodeClock, EpisodeRecord, FaultRecord, ViewBounds
from faultset.collector.episodes.state_machine import Command, EpisodeMachine, Phase
from faultset.collector.mitigation.messages import MitigationResult, RepairOrder
from faultset.collector.plans.plan import Draws
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.recorder import SourceRecorder
from faultset.collector.verdicts.client_requests import earlier_changes, unsteady_reason, with_load
from faultset.collector.verdicts.latent import ROLLOUT
from faultset.collector.verdicts.verdict import Judgement
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.collector.mitigation.attempts import MitigationAttempt

LARGEST_DELAY_MS = 1500.0

_log = logging.getLogger(__name__)


class FaultNotConfirmed(PlatformError):
    """A fault's check never detected the fault; the same plan would fail again."""

    void_cause = "fault not confirmed"


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions:
    """Options for running one episode; a plan describes what to run."""

    sources: SourceRecorder | None = None
    """Sources that the campaign adds."""
    report: Callable[[Phase], None] = lambda phase: None
    """Called with each new phase."""
    interrupted: Callable[[], bool] = lambda: False
    """Called several times a second; once it returns True, the episode undoes its changes and ends."""
    parallel: int = 1
    """Maximum number of concurrent episodes of the campaign."""
    pressure: CpuPressure = field(default_factory=CpuPressure)
    """Measures CPU shortage, by default on this machine."""
    repairs: Sequence[RepairOrder] = ()
    """Repairs to try on the fault; an episode with repairs is not written."""
    clock: EpisodeClock = SYSTEM_CLOCK
    """Clock of the episode."""
    store_servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Server that runs each store, for the context."""


class EpisodeActions:
    """The action of each command; failed actions raise a FaultsetError with the reason."""

    def __init__(
        self,
        record: EpisodeRecord,
        machine: EpisodeMachine,
        draws: Draws,
        platform: EpisodePlatform,
        journal: Journal,
        root: Path,
        options: EpisodeOptions,
        *,
        watchdog: EpisodeWatchdog,
    ):
        self.record, self.plan = record, record.plan
        self.machine, self.draws, self.platform, self.journal, self.root = machine, draws, platform, journal, root
        self.sources = options.sources or SourceRecorder((), root)
        self.judgement: Judgement | None = None
        self.mitigations: tuple[MitigationResult, ...] = ()
        self._attempt = _create_attempt(options.repairs, platform) if options.repairs else None
        self._steps = FaultSteps(record, platform, options.clock)
        self._interrupted, self._pressure, self._clock = options.interrupted, options.pressure, options.clock
        self._watchdog = watchdog
        self._decoys = DecoySchedule(
            platform, draws.decoys, onset_s=draws.onset_s, faults={fault.target: fault.spec for fault in record.faults}
        )

    def handlers(self) -> dict[Command, Callable[[], None]]:
        return {
            Command.DEPLOY: self.deploy,
            Command.START_LOAD: self.start_load,
            Command.CHECK_WARM: self.check_warm,
            Command.CHECK_REFERENCE: self.check_reference,
            Command.DECOY: self.make_decoys,
            Command.INJECT: self.inject,
            Command.MITIGATE: self.mitigate,
            Command.UNDO: self.undo,
            Command.COLLECT: self.collect,
            Command.TEARDOWN: self.teardown,
        }

    def deploy(self) -> None:
        self.platform.deploy()
        _log.info("%s is deployed", self.plan.app)

        def is_ready() -> bool:
            if self._interrupted():
                raise PlatformError("interrupted while the application was starting")
            return not unready_workloads(self.platform)

        timeout_s = self._pressure.scaled_s(self.platform.ready_timeout_s)
        self.platform.wait(is_ready, timeout_s=timeout_s, what=f"{self.plan.app} to become ready")
        if age_application(self.platform, np.random.default_rng([self.plan.seed, 4])):
            self.platform.wait(is_ready, timeout_s=timeout_s, what=f"{self.plan.app} to become ready again")
            self.journal.accept()
        _log.info("%s is ready", self.plan.app)
        self.machine.warm_grace_s = self._pressure.scaled_s(self.machine.warm_grace_s)

    def start_load(self) -> None:
        self.sources.start(self.platform, self.plan.step_s)
        plan = self.plan
        self.platform.start_load(seed=self.draws.load_seed, rate_rps=plan.rate_rps, mix=plan.mix, traffic=plan.traffic)
        load = plan.traffic.pattern.kind
        _log.info("%s load of %g requests a second has begun, mix %s", load, plan.rate_rps, plan.mix)

    def check_warm(self) -> None:
        """Raise PlatformError unless the application is healthy at the end of the warm-up."""
        end_ns = self._clock.time_ns()
        window_s = min(20.0, max(2.5, 0.6 * self.plan.phases.warmup_s))
        self._require_health(end_ns - int(window_s * SECOND_NS), end_ns, "after the warm-up")

    def check_reference(self) -> None:
        """Raise PlatformError unless the application was healthy and steady in the reference.

        Unsteady requests make the episode void, so it ends early.
        """
        start_ns = self.machine.view_start_ns
        self._require_health(start_ns, self.machine.reference_end_ns, "before the injection")
        end_ns = self._clock.time_ns() - SETTLE_NS
        requests = requests_between(self.platform, start_ns, end_ns)
        if not self.plan.traffic.pattern.is_constant:
            requests = with_load(requests)
        reason = unsteady_reason(earlier_changes(requests, start_ns=start_ns, onset_ns=end_ns))
        if reason:
            raise UnexplainedRequestChange(self.plan.title, reason)

    def _require_health(self, start_ns: int, end_ns: int, when: str) -> None:
        problem = health_problem(
            self.platform,
            start_ns,
            end_ns,
            self.plan.min_rate_rps,
            now_ns=self._clock.time_ns(),
            rolling_out=self.record.rolled_out_services,
        )
        self.record.add_evidence("health", self.plan.app, not problem, f"{when}: {problem or 'healthy'}")
        if problem:
            raise PlatformError(f"{self.plan.app} was not healthy {when}: {problem}")
        _log.info("%s is healthy %s", self.plan.app, when)

    def make_decoys(self) -> None:
        elapsed_s = (self._clock.time_ns() - self.machine.view_start_ns) / SECOND_NS
        for step in self._decoys.take_due(elapsed_s):
            self.journal.note("decoy", [str(value) for value in step.values()], **step)
            if service := step.get("replaces_pods_of"):
                self.record.add_evidence(ROLLOUT, service, True, step.get("image", step["decoy"]))
            _log.info("harmless change: %s of %s", step["decoy"], step["service"])

    def inject(self) -> None:
        """Inject the faults that are due, or apply the change of an episode without a fault."""
        record = self.record
        if self._attempt and record.inject_start_ns is None:
            self._attempt.note_healthy()
        if not record.faults:
            record.inject_start_ns = record.inject_start_ns or self._clock.time_ns()
            changes = {"disturbed": disturb, "sham": imitate_fault}
            change = changes.get(self.plan.no_fault_kind or "")
            record.change = change(self.platform, self.draws.fault) if change else {}
        self._steps.inject(self.machine.onset_ns)

    def confirm(self) -> None:
        self._steps.confirm()

    def mitigate(self) -> None:
        """Try the repairs until the application stays healthy."""
        assert self._attempt is not None
        if self.record.unconfirmed:
            raise self._create_unconfirmed_error(self.record.unconfirmed[0])
        recording = LiveRecording(self.record, self.platform, self._bounds, self.journal.path.parent)
        waits = RepairWaits(
            self._clock,
            self.record.faults[0].spec.repeat_s,
            inject=self.inject,
            interrupted=self._interrupted,
            watchdog=self._watchdog,
        )
        live = build_live_fault(self.record, self.machine, self.platform, waits, recording)
        _log.info("the repair begins")
        try:
            self.mitigations = self._attempt.run(live)
        finally:
            recording.close()
        for result in self.mitigations:
            _log.info("the repair %s %s", result.repair, "has succeeded" if result.success else "has failed")

    def undo(self) -> None:
        """Undo every change; at the end of the view, also wait until the application has recovered."""
        record, was_injected = self.record, self.record.inject_start_ns is not None
        record.recover_start_ns = self._clock.time_ns()
        if self.machine.phase is Phase.RECOVER:
            if self._attempt is None:
                read_early(self.platform, self._bounds(self.machine.view_end_ns), record.inject_start_ns)
            self.confirm()
            for fault in record.unconfirmed:
                record.add_evidence("injection", fault.target, False, "the check never detected the fault")
        self.platform.step_load(1.0)
        self.platform.undo()
        record.recover_done_ns = self._clock.time_ns()
        _log.info("all changes are undone")
        if self.machine.phase is not Phase.RECOVER:
            return
        if record.unconfirmed and was_injected:
            raise self._create_unconfirmed_error(record.unconfirmed[0])
        self._await_recovery()
        if self._attempt:
            self._attempt.check_restored()

    def _bounds(self, end_ns: int) -> ViewBounds:
        return ViewBounds(
            start_ns=self.machine.view_start_ns, reference_end_ns=self.machine.reference_end_ns, end_ns=end_ns
        )

    def _create_unconfirmed_error(self, fault: FaultRecord) -> FaultNotConfirmed:
        advice = (
            ". If another fault blocks requests to this target, choose other --targets" if self.plan.further else ""
        )
        return FaultNotConfirmed(
            f"fault {fault.spec.name} on {fault.target} must take effect within {self.plan.phases.fault_s:g} s, but "
            f"its check found nothing. Raise --faulty, or correct the check{advice}"
        )

    def _await_recovery(self) -> None:
        timeout_s = self._pressure.scaled_s(RECOVERY_TIMEOUT_S)
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * SECOND_NS)
        undo_done_ns = self._clock.time_ns()
        while True:
            self._pressure.sample()
            problem = find_recovery_problem(self.platform, undo_done_ns, self._clock.time_ns(), self.plan.min_rate_rps)
            if problem is None:
                break
            if self._interrupted():
                raise PlatformError("interrupted during the recovery")
            self._watchdog.check()
            if self._clock.monotonic_ns() > deadline_ns:
                raise PlatformError(f"{self.plan.app} did not recover within {timeout_s:.0f} s: {problem}")
            self._clock.sleep(1.0)
        self.record.healthy_again_ns = self._clock.time_ns()
        _log.info("%s is healthy again", self.plan.app)
        self.record.add_evidence(
            "recovery", self.plan.target_name or self.plan.app, True, "ready, and client requests succeed"
        )

    def collect(self) -> None:
        """Write the episode; raise HostTooBusy if the host disturbed it."""
        late_ms = self.platform.measure_host_load().worst_ms
        if late_ms is None:
            self.record.add_evidence("host", "host", False, "this platform does not measure delays of the host")
        else:
            self.record.add_evidence("host", "host", late_ms <= LARGEST_DELAY_MS, f"{late_ms:.0f} ms late at worst")
        if late_ms is not None and late_ms > LARGEST_DELAY_MS:
            raise HostTooBusy(
                f"the host may delay a process by at most {LARGEST_DELAY_MS:.0f} ms, but the delay was {late_ms:.0f} "
                "ms. Lower --jobs, or end other programs"
            )
        self.judgement = write_episode(
            self.root,
            self.record,
            self._bounds(self.machine.view_end_ns),
            self.platform,
            self.journal,
            self.sources,
            is_busy=self._pressure.is_busy(window_s=self.plan.phases.view_s),
        )

    def teardown(self) -> None:
        self.sources.close()
        self.platform.teardown()


def _create_attempt(repairs: Sequence[RepairOrder], platform: EpisodePlatform) -> MitigationAttempt:
    # few episodes need these slow imports
    from faultset.collector.mitigation.attempts import MitigationAttempt

    return MitigationAttempt(repairs, platform)
