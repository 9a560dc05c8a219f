"""Running one episode on a platform: executes the commands of the state machine and reports their results to it."""

from __future__ import annotations

import copy
import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from faultset.collector.episodes import harmless_changes
from faultset.collector.episodes.health import HostTooBusy, unhealthy, unready
from faultset.collector.episodes.host_pressure import CpuPressure
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.episodes.records import EpisodeRecord, ViewBounds
from faultset.collector.episodes.state_machine import Command, EpisodeMachine, Event, Phase
from faultset.collector.episodes.watchdog import EpisodeWatchdog
from faultset.collector.episodes.writer import write_episode
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.plan import Plan, draw
from faultset.collector.platforms.api.capabilities import host_load
from faultset.collector.platforms.api.objects import ObjectNotFound
from faultset.collector.platforms.api.platform import EpisodePlatform
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.sources.recorder import SourceRecorder
from faultset.collector.verdicts.verdict import Judgement
from faultset.core.errors import FaultsetError, PlatformError, UsageError
from faultset.core.times import SECOND_NS

RECOVERY_TIMEOUT_S = 120.0
RECOVERY_WINDOW_S = 4.0
LARGEST_DELAY_MS = 1500.0

_log = logging.getLogger(__name__)


class FaultNotConfirmed(PlatformError):
    """Nothing showed that a fault took effect; the same plan would end the same way."""


class EpisodeRunner:
    """Runs one planned episode on a platform and writes it into a dataset.

    Parameters
    ----------
    sources
        The sources that the campaign adds.
    report
        Called with the phase and its expected end (ns) whenever they change.
    interrupted
        Called several times a second; the episode is undone and ended once it returns True.
    parallel
        How many episodes the campaign runs at a time.
    pressure
        Measures how short of CPU this machine is; measured anew when left out.
    """

    def __init__(
        self,
        plan: Plan,
        platform: EpisodePlatform,
        journal: Journal,
        root: Path,
        *,
        sources: SourceRecorder | None = None,
        report: Callable[[Phase, int | None], None] = lambda phase, end: None,
        interrupted: Callable[[], bool] = lambda: False,
        parallel: int = 1,
        pressure: CpuPressure | None = None,
    ):
        self.plan, self.platform, self.journal, self.root = plan, platform, journal, root
        self.sources = sources or SourceRecorder((), root)
        fault = get_fault(plan.fault) if plan.fault else None
        self.record = EpisodeRecord(plan=plan, fault=fault, parallel=parallel)
        self.draws = draw(plan)
        self.machine = EpisodeMachine(plan=plan, draws=self.draws, repeat_s=fault.repeat_s if fault else None)
        self._report, self._interrupted = report, interrupted
        self._judgement: Judgement | None = None
        self._next_check_ns = 0
        self._surroundings = EpisodeWatchdog(platform)
        self._exit_code = 0
        self._retriable = True
        self._spoiled_by_host = False
        self._pressure = pressure or CpuPressure()
        self._handlers: dict[Command, Callable[[], None]] = {
            Command.DEPLOY: self._deploy,
            Command.START_LOAD: self._start_load,
            Command.CHECK_WARM: self._check_warm,
            Command.CHECK_REFERENCE: self._check_reference,
            Command.CHANGE: self._change,
            Command.INJECT: self._inject,
            Command.UNDO: self._undo,
            Command.COLLECT: self._collect,
            Command.TEARDOWN: self._teardown,
        }

    def run(self) -> EpisodeOutcome:
        """Run the episode to its end; an unexpected exception is raised after everything was undone and removed."""
        bug: BaseException | None = None
        phase, commands = Phase.NEW, deque(self.machine.handle(Event(now_ns=time.time_ns())))
        while self.machine.phase is not Phase.DONE:
            if self.machine.phase is not phase:
                phase = self.machine.phase
                self.journal.note("phase", name=str(phase))
                self._report(phase, self.machine.deadline_ns)
            if commands:
                command = commands.popleft()
                event, error = self._perform(command)
                bug = bug or error
                commands.extend(self.machine.handle(event))
                continue
            commands.extend(self.machine.handle(self._wait()))
        if bug:
            raise bug
        judgement = self._judgement
        return EpisodeOutcome(
            episode=self.plan.episode,
            failure=self.machine.failure,
            verdict=judgement.verdict if judgement else None,
            interrupted=self.machine.interrupted,
            retriable=self._retriable,
            spoiled_by_host=self._spoiled_by_host,
            exit_code=self._exit_code,
            durations_s=self.record.durations_s,
            sli_fires=bool(judgement and judgement.sli_fires),
            latent_fires=bool(judgement and judgement.latent_fires),
            source_failures=self.sources.failures,
        )

    def _perform(self, command: Command) -> tuple[Event, BaseException | None]:
        began = time.monotonic()
        ok, reason, bug = True, "", None
        try:
            self._handlers[command]()
        except FaultsetError as error:
            ok, reason = False, str(error)
            self._exit_code = self._exit_code or error.exit_code
            is_certain = isinstance(error, ObjectNotFound | UsageError)
            is_busy = self._pressure.is_busy(window_s=60.0) and not is_certain
            self._spoiled_by_host |= isinstance(error, HostTooBusy) or is_busy
            is_certain |= isinstance(error, FaultNotConfirmed) and not is_busy
            self._retriable = self._retriable and not is_certain
        except Exception as error:
            ok, reason, bug = False, f"{type(error).__name__}: {error}", error
        name = str(command)
        self.record.durations_s[name] = self.record.durations_s.get(name, 0.0) + time.monotonic() - began
        return Event(now_ns=time.time_ns(), command=command, ok=ok, reason=reason), bug

    def _wait(self) -> Event:
        deadline_ns = self.machine.deadline_ns or time.time_ns() + SECOND_NS // 10
        while (now_ns := time.time_ns()) < deadline_ns:
            self._pressure.sample()
            if self._interrupted():
                return Event(now_ns=now_ns, interrupt=True)
            try:
                self._surroundings.check()
            except PlatformError as error:
                self._exit_code = self._exit_code or error.exit_code
                return Event(now_ns=now_ns, ok=False, reason=str(error))
            if self.machine.phase is Phase.FAULT and now_ns >= self._next_check_ns:
                self._next_check_ns = now_ns + SECOND_NS // 2
                self._confirm()
            time.sleep(min(0.1, max(0.0, (deadline_ns - time.time_ns()) / 1e9)))
        return Event(now_ns=time.time_ns())

    def _deploy(self) -> None:
        self.platform.deploy()
        _log.info("%s is deployed", self.plan.app)

        def is_ready() -> bool:
            if self._interrupted():
                raise PlatformError("interrupted while the application was starting")
            return not unready(self.platform)

        timeout_s = self._pressure.scaled_s(self.platform.ready_timeout_s)
        self.platform.wait(is_ready, timeout_s=timeout_s, what=f"{self.plan.app} to become ready")
        _log.info("%s is ready", self.plan.app)
        self.machine.warm_grace_s = self._pressure.scaled_s(self.machine.warm_grace_s)

    def _start_load(self) -> None:
        self.sources.start(self.platform, self.plan.step_s)
        self.platform.start_load(seed=self.draws.load_seed, rate_rps=self.plan.rate_rps, mix=self.plan.mix)
        _log.info("load of %g requests a second has begun, mix %s", self.plan.rate_rps, self.plan.mix)

    def _check_warm(self) -> None:
        end_ns = time.time_ns()
        window_s = min(20.0, max(2.5, 0.6 * self.plan.phases.warmup_s))
        self._must_be_healthy(end_ns - int(window_s * SECOND_NS), end_ns, "after the warm-up")

    def _check_reference(self) -> None:
        machine = self.machine
        self._must_be_healthy(machine.view_start_ns, machine.reference_end_ns, "before the injection")

    def _must_be_healthy(self, start_ns: int, end_ns: int, when: str) -> None:
        wrong = unhealthy(self.platform, start_ns, end_ns, self.plan.rate_rps)
        self.record.add_evidence("health", self.plan.app, not wrong, f"{when}: {wrong or 'healthy'}")
        if wrong:
            raise PlatformError(f"{self.plan.app} was not healthy {when}: {wrong}")
        _log.info("%s is healthy %s", self.plan.app, when)

    def _change(self) -> None:
        self.journal.note("change", **harmless_changes.harmless_change(self.platform, self.draws.changes))

    def _inject(self) -> None:
        record = self.record
        if record.fault and record.fault.observe and self.plan.target and record.inject_start_ns is None:
            record.before = record.fault.observe(self.platform, self.plan.target)
        record.inject_start_ns = record.inject_start_ns or time.time_ns()
        if record.fault is None:
            changes = {"disturbed": harmless_changes.disturb, "sham": harmless_changes.imitate_fault}
            change = changes.get(self.plan.no_fault_kind or "")
            record.parameters = change(self.platform, self.draws.fault) if change else {}
        else:
            assert self.plan.target is not None
            # every repetition draws the same, and what the first one did is what the label says
            rng = copy.deepcopy(self.draws.fault)
            parameters = dict(record.fault.inject(self.platform, self.plan.target, rng))
            record.parameters = record.parameters or parameters
        if record.inject_done_ns is None:
            record.inject_done_ns = time.time_ns()
            _log.info("injected: %s", self.plan.title)
        self._confirm()

    def _confirm(self) -> None:
        record, target = self.record, self.plan.target
        if record.fault is None or record.effective_ns or target is None:
            return
        seen = record.fault.check(self.platform, target, record.parameters, record.before)
        if seen:
            record.effective_ns = time.time_ns()
            record.add_evidence("injection", target, True, seen)
            _log.info("the fault is in effect: %s", seen)

    def _undo(self) -> None:
        record, was_injected = self.record, self.record.inject_start_ns is not None
        record.recover_start_ns = time.time_ns()
        if self.machine.phase is Phase.RECOVER:
            self._confirm()
            if record.fault and not record.effective_ns:
                record.add_evidence(
                    "injection", self.plan.target or "", False, "nothing showed that the fault took effect"
                )
        self.platform.step_load(1.0)
        self.platform.undo()
        record.recover_done_ns = time.time_ns()
        _log.info("undone")
        if self.machine.phase is not Phase.RECOVER:
            return
        if record.fault and was_injected and not record.effective_ns:
            raise FaultNotConfirmed(
                f"fault {record.fault.name} on {self.plan.target} could not be confirmed: its check found nothing in "
                f"{self.plan.phases.fault_s:g} s; give it more time with --fault, or correct the check"
            )
        self._await_recovery()

    def _await_recovery(self) -> None:
        timeout_s = self._pressure.scaled_s(RECOVERY_TIMEOUT_S)
        deadline = time.monotonic() + timeout_s
        window_ns = int(RECOVERY_WINDOW_S * SECOND_NS)
        began_ns = time.time_ns()
        while True:
            now_ns = time.time_ns()
            start_ns = max(now_ns - window_ns, began_ns)
            wrong = unready(self.platform)
            self._pressure.sample()
            if not wrong and now_ns - began_ns >= window_ns:
                wrong = unhealthy(self.platform, start_ns, now_ns, self.plan.rate_rps)
                if not wrong:
                    break
            if self._interrupted():
                raise PlatformError("interrupted during the recovery")
            self._surroundings.check()
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"{self.plan.app} did not recover within {timeout_s:.0f} s: {wrong or 'too few requests'}"
                )
            time.sleep(1.0)
        self.record.healthy_again_ns = time.time_ns()
        _log.info("%s is healthy again", self.plan.app)
        self.record.add_evidence(
            "recovery", self.plan.target or self.plan.app, True, "ready, and client requests succeed"
        )

    def _collect(self) -> None:
        late_ms = host_load(self.platform).worst_ms
        if late_ms is None:
            self.record.add_evidence("host", "host", False, "how late the host was is not measured on this platform")
        else:
            self.record.add_evidence("host", "host", late_ms <= LARGEST_DELAY_MS, f"{late_ms:.0f} ms late at worst")
        if late_ms is not None and late_ms > LARGEST_DELAY_MS:
            raise HostTooBusy(
                f"the host was too busy: {late_ms:.0f} ms late at worst, {LARGEST_DELAY_MS:.0f} ms are allowed; "
                "run fewer episodes at a time with --jobs, or end other programs"
            )
        bounds = ViewBounds(
            start_ns=self.machine.view_start_ns,
            reference_end_ns=self.machine.reference_end_ns,
            end_ns=self.machine.view_end_ns,
        )
        self._judgement = write_episode(
            self.root,
            self.record,
            bounds,
            self.platform,
            self.journal,
            self.sources,
            is_busy=self._pressure.is_busy(window_s=self.plan.phases.view_s),
        )

    def _teardown(self) -> None:
        self.sources.close()
        self.platform.teardown()
