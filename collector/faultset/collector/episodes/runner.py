"""The thin shell around the state machine: waits, does what it says, tells it what came of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultset.collector.episodes import harmless_changes
from faultset.collector.episodes.health import unhealthy, unready
from faultset.collector.episodes.snapshot import collect
from faultset.collector.episodes.state_machine import SECOND, Command, EpisodeMachine, Event, Phase
from faultset.collector.faults.registry import FaultSpec, get_fault
from faultset.collector.plans.plan import Plan, draw
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.journal.journal import Journal
from faultset.core.errors import FaultsetError, PlatformError

RECOVERY_TIMEOUT_S = 120.0
RECOVERY_WINDOW_S = 4.0
LARGEST_DELAY_MS = 1500.0


@dataclass
class Course:
    """What happened when, all in UTC nanoseconds; None for what did not happen."""

    inject_start_ns: int | None = None
    inject_done_ns: int | None = None
    effective_ns: int | None = None
    recover_start_ns: int | None = None
    recover_done_ns: int | None = None
    healthy_again_ns: int | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    durations_s: dict[str, float] = field(default_factory=dict)

    def saw(self, check: str, subject: str, passed: bool, detail: str) -> None:
        """Add a row of evidence, seen now."""
        row = {"check": check, "subject": subject, "time": time.time_ns(), "passed": passed, "detail": detail}
        self.evidence.append(row)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an episode ended: its verdict, or why there is none."""

    episode: str
    failure: str
    verdict: str | None
    interrupted: bool = False
    exit_code: int = 0
    durations_s: dict[str, float] = field(default_factory=dict)
    sli_fires: bool = False
    latent_fires: bool = False


class EpisodeRunner:
    """Runs one planned episode on a platform and writes it into a dataset.

    Parameters
    ----------
    report
        Called with the phase and its expected end (ns) whenever they change.
    interrupted
        Asked several times a second whether to stop.
    """

    def __init__(
        self,
        plan: Plan,
        platform: Platform,
        journal: Journal,
        root: Path,
        *,
        report: Callable[[Phase, int | None], None] = lambda phase, end: None,
        interrupted: Callable[[], bool] = lambda: False,
        parallel: int = 1,
    ):
        self.plan, self.platform, self.journal, self.root = plan, platform, journal, root
        self.parallel = parallel
        self.fault: FaultSpec | None = get_fault(plan.fault) if plan.fault else None
        self.draws = draw(plan)
        self.machine = EpisodeMachine(plan=plan, draws=self.draws, repeat_s=self.fault.repeat_s if self.fault else None)
        self.course = Course()
        self._report, self._interrupted = report, interrupted
        self._judgement: Any = None
        self._next_check_ns = 0
        self._exit_code = 0
        self._do: dict[Command, Callable[[], None]] = {
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

    def run(self) -> Outcome:
        """Run the episode to its end; a fault of ours still undoes and tears down, then raises."""
        bug: BaseException | None = None
        phase, commands = Phase.NEW, deque(self._tell(Event(now_ns=time.time_ns())))
        while self.machine.phase is not Phase.DONE:
            if self.machine.phase is not phase:
                phase = self.machine.phase
                self.journal.note("phase", name=str(phase))
                self._report(phase, self.machine.deadline_ns)
            if commands:
                command = commands.popleft()
                event, error = self._perform(command)
                bug = bug or error
                commands.extend(self._tell(event))
                continue
            commands.extend(self._tell(self._wait()))
        if bug:
            raise bug
        judged = self._judgement
        return Outcome(
            episode=self.plan.episode,
            failure=self.machine.failure,
            verdict=judged.verdict if judged else None,
            interrupted=self.machine.interrupted,
            exit_code=self._exit_code,
            durations_s=self.course.durations_s,
            sli_fires=bool(judged and judged.sli_fires),
            latent_fires=bool(judged and judged.latent_fires),
        )

    def _tell(self, event: Event) -> list[Command]:
        return self.machine.handle(event)

    def _perform(self, command: Command) -> tuple[Event, BaseException | None]:
        began = time.monotonic()
        ok, reason, bug = True, "", None
        try:
            self._do[command]()
        except FaultsetError as error:
            ok, reason = False, str(error)
            self._exit_code = self._exit_code or error.exit_code
        except Exception as error:
            ok, reason, bug = False, f"{type(error).__name__}: {error}", error
        name = str(command)
        self.course.durations_s[name] = self.course.durations_s.get(name, 0.0) + time.monotonic() - began
        return Event(now_ns=time.time_ns(), command=command, ok=ok, reason=reason), bug

    def _wait(self) -> Event:
        deadline_ns = self.machine.deadline_ns or time.time_ns() + SECOND // 10
        while (now_ns := time.time_ns()) < deadline_ns:
            if self._interrupted():
                return Event(now_ns=now_ns, interrupt=True)
            if self.machine.phase is Phase.FAULT and now_ns >= self._next_check_ns:
                self._next_check_ns = now_ns + SECOND // 2
                self._confirm()
            time.sleep(min(0.1, max(0.0, (deadline_ns - time.time_ns()) / 1e9)))
        return Event(now_ns=time.time_ns())

    def _deploy(self) -> None:
        self.platform.deploy()

        def is_ready() -> bool:
            if self._interrupted():
                raise PlatformError("interrupted while the application was starting")
            return not unready(self.platform)

        self.platform.wait(is_ready, timeout_s=self.platform.ready_timeout_s, what=f"{self.plan.app} to become ready")

    def _start_load(self) -> None:
        self.platform.start_load(seed=self.draws.load_seed, rate_rps=self.plan.rate_rps, mix=self.plan.mix)

    def _check_warm(self) -> None:
        end_ns = time.time_ns()
        window_s = min(20.0, max(2.5, 0.6 * self.plan.phases.warmup_s))
        self._must_be_healthy(end_ns - int(window_s * SECOND), end_ns, "after the warm-up")

    def _check_reference(self) -> None:
        machine = self.machine
        self._must_be_healthy(machine.view_start_ns, machine.reference_end_ns, "before the injection")

    def _must_be_healthy(self, start_ns: int, end_ns: int, when: str) -> None:
        wrong = unhealthy(self.platform, start_ns, end_ns, self.plan.rate_rps)
        self.course.saw("health", self.plan.app, not wrong, f"{when}: {wrong or 'healthy'}")
        if wrong:
            raise PlatformError(f"{self.plan.app} was not healthy {when}: {wrong}")

    def _change(self) -> None:
        self.journal.note("change", **harmless_changes.harmless_change(self.platform, self.draws.changes))

    def _inject(self) -> None:
        course = self.course
        course.inject_start_ns = course.inject_start_ns or time.time_ns()
        if self.fault is None:
            acts = {"disturbed": harmless_changes.disturb, "sham": harmless_changes.sham}
            act = acts.get(self.plan.no_fault_kind or "")
            course.parameters = act(self.platform, self.draws.fault) if act else {}
        else:
            assert self.plan.target is not None
            course.parameters = dict(self.fault.inject(self.platform, self.plan.target, self.draws.fault))
        course.inject_done_ns = course.inject_done_ns or time.time_ns()
        self._confirm()

    def _confirm(self) -> None:
        if self.fault is None or self.course.effective_ns or self.plan.target is None:
            return
        seen = self.fault.check(self.platform, self.plan.target, self.course.parameters)
        if seen:
            self.course.effective_ns = time.time_ns()
            self.course.saw("injection", self.plan.target, True, seen)

    def _undo(self) -> None:
        course, was_injected = self.course, self.course.inject_start_ns is not None
        course.recover_start_ns = time.time_ns()
        if self.machine.phase is Phase.RECOVER:
            self._confirm()
            if self.fault and not course.effective_ns:
                course.saw("injection", self.plan.target or "", False, "nothing showed that the fault took effect")
        self.platform.step_load(1.0)
        self.platform.undo()
        course.recover_done_ns = time.time_ns()
        if self.machine.phase is not Phase.RECOVER:
            return
        if self.fault and was_injected and not course.effective_ns:
            raise PlatformError(f"fault {self.fault.name} on {self.plan.target} could not be confirmed")
        self._await_recovery()

    def _await_recovery(self) -> None:
        deadline = time.monotonic() + RECOVERY_TIMEOUT_S
        window_ns = int(RECOVERY_WINDOW_S * SECOND)
        began_ns = time.time_ns()
        while True:
            now_ns = time.time_ns()
            start_ns = max(now_ns - window_ns, began_ns)
            wrong = unready(self.platform)
            if not wrong and now_ns - began_ns >= window_ns:
                wrong = unhealthy(self.platform, start_ns, now_ns, self.plan.rate_rps)
                if not wrong:
                    break
            if self._interrupted():
                raise PlatformError("interrupted during the recovery")
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"{self.plan.app} did not recover within {RECOVERY_TIMEOUT_S:g} s: {wrong or 'too few requests'}"
                )
            time.sleep(1.0)
        self.course.healthy_again_ns = time.time_ns()
        self.course.saw("recovery", self.plan.target or self.plan.app, True, "ready, and client requests succeed")

    def _collect(self) -> None:
        load = self.platform.host_load()
        late_ms = max(load.get("worst_delay_ms", 0.0), load.get("worst_scrape_lag_ms", 0.0))
        self.course.saw("host", "host", late_ms <= LARGEST_DELAY_MS, f"{late_ms:.0f} ms late at worst")
        if late_ms > LARGEST_DELAY_MS:
            raise PlatformError(
                f"the host was too busy: {late_ms:.0f} ms late at worst, {LARGEST_DELAY_MS:.0f} ms are allowed; "
                "run fewer episodes at a time with --jobs"
            )
        self._judgement = collect(
            self.plan, self.fault, self.platform, self.journal, self.machine, self.course, self.root, self.parallel
        )

    def _teardown(self) -> None:
        self.platform.teardown()
