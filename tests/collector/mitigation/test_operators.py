"""Operators work in a thread of their own, and the episode goes on however they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from faultset.collector.mitigation import operators
from faultset.collector.mitigation.messages import OperatorOrder
from faultset.collector.mitigation.operators import Desk, Operator, operate
from faultset.core.errors import PlatformError, UsageError

ORDER = OperatorOrder(operator="agent", seconds=0.2)


def operated(work: Callable[[Desk], Mapping[str, Any]], between: Callable[[], None] = lambda: None) -> dict[str, Any]:
    desk = Desk()

    def of(operator: Operator) -> Mapping[str, Any]:
        return work(desk)

    return operate(ORDER, of, desk, between, time.monotonic_ns)


def test_calls_are_carried_out_in_the_thread_of_the_episode() -> None:
    def work(desk: Desk) -> Mapping[str, Any]:
        inside = desk.carried_out(threading.current_thread)
        return {"same": inside is threading.main_thread(), "own": threading.current_thread() is inside}

    assert operated(work) == {"same": True, "own": False}


def test_a_call_that_fails_fails_in_the_thread_of_the_operator() -> None:
    def work(desk: Desk) -> Mapping[str, Any]:
        with pytest.raises(ZeroDivisionError):
            desk.carried_out(lambda: 1 // 0)
        return {"went": "on"}

    assert operated(work) == {"went": "on"}


def test_code_that_fails_is_a_reason_in_the_record() -> None:
    assert "RuntimeError: no idea" in operated(lambda desk: (_ for _ in ()).throw(RuntimeError("no idea")))["failure"]


def test_an_operator_that_hangs_is_left_behind_and_its_later_calls_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "GRACE_S", 0.1)
    waits, failed = threading.Event(), threading.Event()

    def work(desk: Desk) -> Mapping[str, Any]:
        waits.wait(20)
        with pytest.raises(PlatformError, match="the time of the repair is over"):
            desk.carried_out(lambda: None)
        failed.set()
        return {}

    assert operated(work) == {"failure": "it did not end within 0.2 s"}
    waits.set()
    assert failed.wait(20)


def test_an_episode_that_ends_meanwhile_ends_the_work() -> None:
    def ends() -> None:
        raise PlatformError("interrupted during the repair")

    with pytest.raises(PlatformError, match="interrupted"):
        operated(lambda desk: {"slept": threading.Event().wait(0.3)}, ends)


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(UsageError, match='unknown operator "nobody"'):
        operators.load_operator("nobody")
