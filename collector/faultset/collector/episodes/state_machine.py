"""An episode as a pure state machine: events in, commands out; no clock and no I/O.

    deploy → warm-up → baseline → inject → fault → recover → cool-down → collect → teardown → done

After any failure, the machine undoes injections and removes the application.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from faultset.collector.plans.plan import Draws, Plan
from faultset.core.times import SECOND_NS


class Phase(StrEnum):
    """Phase of an episode."""

    NEW = "new"
    DEPLOY = "deploy"
    WARMUP = "warm-up"
    BASELINE = "baseline"
    INJECT = "inject"
    FAULT = "fault"
    RECORD = "record"
    MITIGATE = "mitigate"
    RECOVER = "recover"
    COOLDOWN = "cool-down"
    COLLECT = "collect"
    TEARDOWN = "teardown"
    DONE = "done"


class Command(StrEnum):
    """Command for the runner, which reports each result with an event."""

    DEPLOY = "deploy"
    START_LOAD = "start-load"
    CHECK_WARM = "check-warm"
    CHECK_REFERENCE = "check-reference"
    DECOY = "decoy"
    RECORD = "record"
    INJECT = "inject"
    MITIGATE = "mitigate"
    UNDO = "undo"
    COLLECT = "collect"
    TEARDOWN = "teardown"


@dataclass(frozen=True, kw_only=True)
class Event:
    """The end of a command, with its result (`ok`, `reason`); without a command, a clock tick.

    `enough` ends the view early, in episodes that are not written.
    """

    now_ns: int
    command: Command | None = None
    ok: bool = True
    reason: str = ""
    interrupt: bool = False
    enough: bool = False


@dataclass
class EpisodeMachine:
    """State of one episode."""

    plan: Plan
    draws: Draws
    repeats_s: tuple[float, ...] = ()
    """Intervals in seconds of faults that are injected repeatedly."""
    warm_grace_s: float = 60.0
    """Additional seconds after the warm-up in which the application may become healthy."""
    mitigates: bool = False
    """Whether the application is repaired at the end of the view; such an episode is not written."""
    phase: Phase = Phase.NEW
    """Current phase."""
    view_start_ns: int = 0
    """Beginning of the view, set at the start of the baseline."""
    onset_ns: int = 0
    """Beginning of the fault, set at the start of the baseline."""
    deadline_ns: int | None = None
    """Latest time of the next event; None while the machine waits for a command."""
    failure: str = ""
    """Why the episode is void; empty when it is valid."""
    interrupted: bool = False
    _warmup_start_ns: int = 0
    _scheduled: list[tuple[int, Command]] = field(default_factory=list)

    @property
    def view_end_ns(self) -> int:
        """End of the view, exclusive."""
        return self.view_start_ns + int(self.plan.phases.view_s * SECOND_NS)

    @property
    def reference_end_ns(self) -> int:
        """End of the reference, which is healthy in every episode."""
        return self.view_start_ns + int(self.plan.phases.reference_s * SECOND_NS)

    def handle(self, event: Event) -> list[Command]:
        """Process one event and return the next commands in order."""
        if event.interrupt and self.phase not in (Phase.TEARDOWN, Phase.DONE):
            self.interrupted = True
            return self._abandon("interrupted")
        if not event.ok and self.phase not in (Phase.TEARDOWN, Phase.DONE):
            if event.command is Command.CHECK_WARM:
                return self._recheck_warm(event)
            return self._abandon(event.reason)
        match self.phase:
            case Phase.NEW:
                self.phase = Phase.DEPLOY
                return [Command.DEPLOY]
            case Phase.DEPLOY if event.command is Command.DEPLOY:
                self.phase = Phase.WARMUP
                return [Command.START_LOAD]
            case Phase.WARMUP:
                return self._warm_up(event)
            case Phase.BASELINE | Phase.INJECT | Phase.FAULT | Phase.RECORD:
                return self._in_view(event)
            case Phase.MITIGATE if event.command is Command.MITIGATE:
                return self._undo()
            case Phase.RECOVER if event.command is Command.UNDO and self.mitigates:
                self.phase = Phase.TEARDOWN
                return [Command.TEARDOWN]
            case Phase.RECOVER if event.command is Command.UNDO:
                self.phase = Phase.COOLDOWN
                self.deadline_ns = event.now_ns + int(self.plan.phases.settling_s * SECOND_NS)
                return []
            case Phase.COOLDOWN if self._is_due(event):
                self.phase, self.deadline_ns = Phase.COLLECT, None
                return [Command.COLLECT]
            case Phase.COLLECT if event.command is Command.COLLECT:
                self.phase = Phase.TEARDOWN
                return [Command.TEARDOWN]
            case Phase.TEARDOWN if event.command is Command.TEARDOWN:
                self.phase, self.deadline_ns = Phase.DONE, None
                return []
            case _:
                return []

    def _is_due(self, event: Event) -> bool:
        return self.deadline_ns is not None and event.now_ns >= self.deadline_ns

    def _warm_up(self, event: Event) -> list[Command]:
        if event.command is Command.START_LOAD:
            self._warmup_start_ns = event.now_ns
            self.deadline_ns = event.now_ns + int(self.plan.phases.warmup_s * SECOND_NS)
            return []
        if event.command is Command.CHECK_WARM:
            self._begin_view(event.now_ns)
            return []
        if self._is_due(event):
            self.deadline_ns = None
            return [Command.CHECK_WARM]
        return []

    def _recheck_warm(self, event: Event) -> list[Command]:
        timeout_s = self.plan.phases.warmup_s + self.warm_grace_s
        if event.now_ns > self._warmup_start_ns + timeout_s * SECOND_NS:
            return self._abandon(event.reason)
        self.deadline_ns = event.now_ns + 2 * SECOND_NS
        return []

    def _begin_view(self, now_ns: int) -> None:
        self.phase = Phase.BASELINE
        self.view_start_ns = -(-now_ns // SECOND_NS) * SECOND_NS
        self.onset_ns = onset_ns = self.view_start_ns + int(self.draws.onset_s * SECOND_NS)
        steps_s = [at_s for decoy in self.draws.decoys for at_s in decoy.times_s if at_s < self.plan.phases.view_s]
        schedule = [(self.view_start_ns + int(at_s * SECOND_NS), Command.DECOY) for at_s in steps_s]
        schedule += [(onset_ns - SECOND_NS, Command.CHECK_REFERENCE), (onset_ns, Command.INJECT)]
        for repeat_s in self.repeats_s:
            repeat_ns = onset_ns
            while (repeat_ns := repeat_ns + int(repeat_s * SECOND_NS)) < self.view_end_ns - SECOND_NS:
                schedule.append((repeat_ns, Command.INJECT))
        self._scheduled = sorted(schedule)
        self.deadline_ns = self._scheduled[0][0]

    def _in_view(self, event: Event) -> list[Command]:
        if event.command is Command.INJECT:
            self.phase = Phase.FAULT
        if event.now_ns >= self.view_end_ns or (event.enough and self.mitigates):
            return self._mitigate() if self.mitigates else self._undo()
        due = [command for at_ns, command in self._scheduled if at_ns <= event.now_ns]
        self._scheduled = [(at_ns, command) for at_ns, command in self._scheduled if at_ns > event.now_ns]
        if Command.INJECT in due and self.phase is Phase.BASELINE:
            self.phase = Phase.INJECT
        self.deadline_ns = min([at_ns for at_ns, _ in self._scheduled[:1]] + [self.view_end_ns])
        return due

    def _mitigate(self) -> list[Command]:
        self.phase, self.deadline_ns = Phase.MITIGATE, None
        return [Command.MITIGATE]

    def _undo(self) -> list[Command]:
        self.phase, self.deadline_ns = Phase.RECOVER, None
        return [Command.UNDO]

    def _abandon(self, reason: str) -> list[Command]:
        self.failure = self.failure or reason
        needs_undo = self.phase in (Phase.BASELINE, Phase.INJECT, Phase.FAULT, Phase.MITIGATE, Phase.RECOVER)
        self.phase, self.deadline_ns, self._scheduled = Phase.TEARDOWN, None, []
        return [Command.UNDO, Command.TEARDOWN] if needs_undo else [Command.TEARDOWN]
