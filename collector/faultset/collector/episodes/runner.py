"""Run one episode: pass the state machine's commands to the actions, and their results back to it."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import ClassVar

from faultset.collector.episodes.actions import EpisodeActions, EpisodeOptions, FaultNotConfirmed
from faultset.collector.episodes.health import EpisodeWatchdog, HostTooBusy
from faultset.collector.episodes.messages import OTHER_FAILURE, EpisodeOutcome
from faultset.collector.episodes.records import EpisodeRecord, FaultRecord
from faultset.collector.episodes.state_machine import Command, EpisodeMachine, Event, Phase
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.plan import Plan, random_draws
from faultset.collector.platforms.base import CannotStart, EpisodePlatform
from faultset.collector.platforms.journal import Journal, UndoFailed
from faultset.collector.platforms.objects import ObjectNotFound
from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
from faultset.core.times import SECOND_NS

REPAIR_DELAY_S = 15
"""Seconds that a repair waits after the fault takes effect, so that clients notice the fault."""


class EpisodeRunner:
    """Runs one planned episode on a platform and writes it into a dataset."""

    machine_type: ClassVar[type[EpisodeMachine]] = EpisodeMachine
    actions_type: ClassVar[type[EpisodeActions]] = EpisodeActions

    def __init__(
        self, plan: Plan, platform: EpisodePlatform, journal: Journal, root: Path, options: EpisodeOptions | None = None
    ):
        options = options or EpisodeOptions()
        self.plan, self.platform, self.journal = plan, platform, journal
        draws = random_draws(plan, has_decoys=not options.repairs)
        faults = tuple(
            FaultRecord(spec=get_fault(planned.fault), target=planned.target, rng=rng, course=course)
            for planned, rng, course in zip(plan.faults, (draws.fault, *draws.further), draws.courses, strict=False)
        )
        self.record = EpisodeRecord(
            plan=plan,
            faults=faults,
            parallel=options.parallel,
            clock=options.clock,
            store_servers=options.store_servers,
        )
        repeats_s = tuple(fault.spec.repeat_s for fault in faults if fault.spec.repeat_s is not None)
        self.machine = self.machine_type(plan=plan, draws=draws, repeats_s=repeats_s, mitigates=bool(options.repairs))
        self._report, self._interrupted, self._clock = options.report, options.interrupted, options.clock
        self._pressure = options.pressure
        self._watchdog = EpisodeWatchdog(platform, options.clock)
        self._actions = self.actions_type(
            self.record, self.machine, draws, platform, journal, root, options, watchdog=self._watchdog
        )
        self._next_check_ns = 0
        self._exit_code = 0
        self._retriable = True
        self._disturbed_by_host = False
        self._needs_recovery = False
        self._void_cause = ""
        self._handlers = self._actions.handlers()

    def run(self) -> EpisodeOutcome:
        """Run the episode; raise unexpected exceptions only after everything has been undone and removed."""
        bug: BaseException | None = None
        phase, commands = Phase.NEW, deque(self.machine.handle(Event(now_ns=self._clock.time_ns())))
        while self.machine.phase is not Phase.DONE:
            if self.machine.phase is not phase:
                phase = self.machine.phase
                self.journal.note("phase", name=str(phase))
                self._report(phase)
            if commands:
                command = commands.popleft()
                event, error = self._perform(command)
                bug = bug or error
                commands.extend(self.machine.handle(event))
                continue
            commands.extend(self.machine.handle(self._wait()))
        if bug:
            raise bug
        judgement = self._actions.judgement
        return EpisodeOutcome(
            episode=self.plan.episode,
            failure=self.machine.failure,
            verdict=judgement.verdict if judgement else None,
            interrupted=self.machine.interrupted,
            retriable=self._retriable,
            disturbed_by_host=self._disturbed_by_host,
            needs_recovery=self._needs_recovery,
            void_cause=self._void_cause or OTHER_FAILURE,
            exit_code=self._exit_code,
            durations_s=self.record.durations_s,
            source_failures=self._actions.sources.failures,
            mitigations=self._actions.mitigations,
        )

    def _perform(self, command: Command) -> tuple[Event, BaseException | None]:
        start_ns = self._clock.monotonic_ns()
        ok, reason, bug = True, "", None
        try:
            self._handlers[command]()
        except FaultsetError as error:
            ok, reason = False, str(error)
            self._exit_code = self._exit_code or error.exit_code
            self._void_cause = self._void_cause or getattr(error, "void_cause", OTHER_FAILURE)
            self._needs_recovery |= isinstance(error, UndoFailed)
            is_certain = isinstance(error, ObjectNotFound | CannotStart | UsageError | DataError)
            is_busy = self._pressure.is_busy(window_s=60.0) and not is_certain and not isinstance(error, UndoFailed)
            self._disturbed_by_host |= isinstance(error, HostTooBusy) or is_busy
            is_certain |= isinstance(error, FaultNotConfirmed) and not is_busy
            self._retriable = self._retriable and not is_certain
        except Exception as error:
            ok, reason, bug = False, f"{type(error).__name__}: {error}", error
        name = str(command)
        duration_s = (self._clock.monotonic_ns() - start_ns) / SECOND_NS
        self.record.durations_s[name] = self.record.durations_s.get(name, 0.0) + duration_s
        return Event(now_ns=self._clock.time_ns(), command=command, ok=ok, reason=reason), bug

    def _wait(self) -> Event:
        deadline_ns = self.machine.deadline_ns or self._clock.time_ns() + SECOND_NS // 10
        while True:
            now_ns = self._clock.time_ns()
            self._pressure.sample()
            if self._interrupted():
                return Event(now_ns=now_ns, interrupt=True)
            try:
                # before the deadline: setting the clock forwards would make all deadlines pass at once
                self._watchdog.check()
            except PlatformError as error:
                self._exit_code = self._exit_code or error.exit_code
                return Event(now_ns=now_ns, ok=False, reason=str(error))
            if now_ns >= deadline_ns:
                return Event(now_ns=now_ns)
            if self.machine.phase is Phase.FAULT and now_ns >= self._next_check_ns:
                self._next_check_ns = now_ns + SECOND_NS // 2
                self._actions.confirm()
                effective_ns = self.record.effective_ns
                if self.machine.mitigates and effective_ns and now_ns >= effective_ns + REPAIR_DELAY_S * SECOND_NS:
                    return Event(now_ns=now_ns, enough=True)
            self._clock.sleep(min(0.1, max(0.0, (deadline_ns - self._clock.time_ns()) / 1e9)))
