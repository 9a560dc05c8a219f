"""What signals to stop do while something is under way, and that they do so no longer than that."""

from __future__ import annotations

import signal

import pytest

from faultset.collector.cli.cluster import interrupts, raised_interrupts

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in NUMBERS]


def test_signals_are_collected_and_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = handlers()
    with interrupts() as received:
        for number in NUMBERS:
            signal.raise_signal(number)
    assert received == list(NUMBERS)
    assert capsys.readouterr().err.count("stopping") == 1
    assert handlers() == before


def test_sigterm_interrupts_as_the_keyboard_does() -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), raised_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert handlers() == before
