"""The episode's state machine, fed with events: no clock, no platform."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from faultset.collector.episodes.state_machine import Command, EpisodeMachine, Event, Phase
from faultset.collector.plans.plan import Draws
from faultset.collector.plans.timeline import Decoy
from faultset.core.times import SECOND_NS as SECOND
from tests.collector.plan_samples import PLAN


def decoy(number: int, at_s: float) -> Decoy:
    times_s = (at_s, at_s + 10.0, at_s + 20.0)
    return Decoy(number=number, times_s=times_s, kind_position=0.0, service_position=0.0, seed=1)


def machine(onset_s: float = 95.0, repeats_s: tuple[float, ...] = (), mitigates: bool = False) -> EpisodeMachine:
    draws = Draws(
        onset_s=onset_s,
        decoys=tuple(decoy(number, at_s) for number, at_s in enumerate((30.0, 150.0))),
        fault=np.random.default_rng(0),
        load_seed=7,
    )
    return EpisodeMachine(plan=PLAN, draws=draws, repeats_s=repeats_s, mitigates=mitigates)


def drive(
    subject: EpisodeMachine, failing: Command | None = None, until_ns: int = 600 * SECOND
) -> list[tuple[float, Command]]:
    """Answer every command at once, jump to every deadline; return what was asked for and when."""
    now, log = 0, []
    todo = subject.handle(Event(now_ns=now))
    for _ in range(200):
        if todo:
            command = todo.pop(0)
            log.append((now / SECOND, command))
            fails = command is failing
            todo += subject.handle(Event(now_ns=now, command=command, ok=not fails, reason="it broke" if fails else ""))
        elif subject.phase is Phase.DONE or now > until_ns:
            break
        else:
            now = subject.deadline_ns if subject.deadline_ns is not None else now + SECOND
            todo += subject.handle(Event(now_ns=now))
    return log


def test_an_episode_goes_through_all_phases_in_order() -> None:
    subject = machine()
    log = drive(subject)
    assert [command for _, command in log] == [
        Command.DEPLOY,
        Command.START_LOAD,
        Command.CHECK_WARM,
        *3 * [Command.DECOY],
        Command.CHECK_REFERENCE,
        Command.INJECT,
        *3 * [Command.DECOY],
        Command.UNDO,
        Command.COLLECT,
        Command.TEARDOWN,
    ]
    assert subject.failure == ""


@pytest.mark.parametrize(("cooldown_s", "settling_s"), [(2, 2), (5, 5), (15, 5), (60, 50)])
def test_telemetry_is_read_in_the_last_seconds_of_the_cool_down(cooldown_s: float, settling_s: float) -> None:
    subject = machine()
    subject.plan = replace(PLAN, phases=replace(PLAN.phases, cooldown_s=cooldown_s))
    times = {command: at for at, command in drive(subject) if command in (Command.UNDO, Command.COLLECT)}
    assert times[Command.COLLECT] - times[Command.UNDO] == settling_s


@pytest.mark.parametrize("onset_s", [80.0, 95.5, 119.9])
def test_the_view_has_the_same_length_wherever_the_onset_falls(onset_s: float) -> None:
    subject = machine(onset_s)
    times = {command: at for at, command in drive(subject) if command in (Command.INJECT, Command.UNDO)}
    start_s = subject.view_start_ns / SECOND
    assert times[Command.INJECT] == pytest.approx(start_s + onset_s)
    assert times[Command.UNDO] == start_s + 200
    assert subject.view_end_ns - subject.view_start_ns == 200 * SECOND
    assert subject.reference_end_ns - subject.view_start_ns == 80 * SECOND


def test_a_repeated_fault_is_injected_until_the_recovery_and_not_after() -> None:
    subject = machine(onset_s=100, repeats_s=(30,))
    injected = [at - subject.view_start_ns / SECOND for at, c in drive(subject) if c is Command.INJECT]
    assert injected == [100, 130, 160, 190]


@pytest.mark.parametrize(
    "failing", [c for c in Command if c not in (Command.TEARDOWN, Command.CHECK_WARM, Command.RECORD)]
)
def test_whatever_fails_the_episode_is_torn_down_and_says_why(failing: Command) -> None:
    subject = machine(mitigates=failing is Command.MITIGATE)
    log = [command for _, command in drive(subject, failing)]
    assert log[-1] is Command.TEARDOWN
    assert subject.phase is Phase.DONE
    assert subject.failure == "it broke"
    injected = Command.INJECT in log
    assert not injected or Command.UNDO in log


def test_an_application_is_repaired_at_the_end_of_the_view_and_the_episode_is_not_written() -> None:
    log = [command for _, command in drive(machine(mitigates=True))]
    assert log[-3:] == [Command.MITIGATE, Command.UNDO, Command.TEARDOWN]
    assert Command.COLLECT not in log


@pytest.mark.parametrize("mitigates", [True, False])
def test_only_a_view_that_is_not_written_ends_once_enough_was_seen(mitigates: bool) -> None:
    subject = machine(mitigates=mitigates)
    drive(subject, until_ns=130 * SECOND)
    subject.phase = Phase.FAULT
    commands = subject.handle(Event(now_ns=subject.view_end_ns - SECOND, enough=True))
    assert (commands == [Command.MITIGATE]) is mitigates


def test_a_failed_injection_is_undone() -> None:
    log = [command for _, command in drive(machine(), Command.INJECT)]
    assert log[-3:] == [Command.INJECT, Command.UNDO, Command.TEARDOWN]


def test_an_application_that_never_gets_warm_is_given_up_after_the_grace() -> None:
    subject = machine()
    log = drive(subject, Command.CHECK_WARM)
    assert subject.failure == "it broke"
    assert 10 + 60 <= log[-1][0] <= 10 + 60 + 4
    assert Command.INJECT not in [command for _, command in log]


def test_an_interrupt_in_any_phase_leads_to_undo_and_teardown() -> None:
    for steps in itertools.count(1):
        subject = machine()
        now, todo, asked = 0, subject.handle(Event(now_ns=0)), []
        for _ in range(steps):
            if todo:
                command = todo.pop(0)
                asked.append(command)
                todo += subject.handle(Event(now_ns=now, command=command))
            else:
                now = subject.deadline_ns or now + SECOND
                todo += subject.handle(Event(now_ns=now))
        if subject.phase in (Phase.TEARDOWN, Phase.DONE):
            break
        after = subject.handle(Event(now_ns=now, interrupt=True))
        assert after[-1] is Command.TEARDOWN
        assert subject.interrupted
        if Command.INJECT in asked and subject.phase is not Phase.COOLDOWN and Command.UNDO not in asked:
            assert Command.UNDO in after
