"""Mitigators work in a thread of their own, and the episode goes on however they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from faultset.collector.mitigation import mitigators
from faultset.collector.mitigation.messages import MitigatorOrder
from faultset.collector.mitigation.mitigators import CallQueue, Mitigator, run_mitigator
from faultset.core.errors import PlatformError, UsageError

ORDER = MitigatorOrder(mitigator="operator", seconds=0.2)


def mitigated(
    work: Callable[[CallQueue], Mapping[str, Any]], between: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    queue = CallQueue()

    def of(mitigator: Mitigator) -> Mapping[str, Any]:
        return work(queue)

    return run_mitigator(ORDER, of, queue, between, time.monotonic_ns)


def test_calls_are_carried_out_in_the_thread_of_the_episode() -> None:
    def work(queue: CallQueue) -> Mapping[str, Any]:
        inside = queue.run(threading.current_thread)
        return {"same": inside is threading.main_thread(), "own": threading.current_thread() is inside}

    assert mitigated(work) == {"same": True, "own": False}


def test_a_call_that_fails_fails_in_the_thread_of_the_mitigator() -> None:
    def work(queue: CallQueue) -> Mapping[str, Any]:
        with pytest.raises(ZeroDivisionError):
            queue.run(lambda: 1 // 0)
        return {"went": "on"}

    assert mitigated(work) == {"went": "on"}


def test_code_that_fails_is_a_reason_in_the_record() -> None:
    assert "RuntimeError: no idea" in mitigated(lambda queue: (_ for _ in ()).throw(RuntimeError("no idea")))["failure"]


def test_a_mitigator_that_hangs_is_left_behind_and_its_later_calls_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mitigators, "GRACE_S", 0.1)
    waits, failed = threading.Event(), threading.Event()

    def work(queue: CallQueue) -> Mapping[str, Any]:
        waits.wait(20)
        with pytest.raises(PlatformError, match="the time limit of the repair has passed"):
            queue.run(lambda: None)
        failed.set()
        return {}

    assert mitigated(work) == {"failure": "it did not end within 0.2 s"}
    waits.set()
    assert failed.wait(20)


def test_an_episode_that_ends_meanwhile_ends_the_work() -> None:
    def ends() -> None:
        raise PlatformError("interrupted during the repair")

    with pytest.raises(PlatformError, match="interrupted"):
        mitigated(lambda queue: {"slept": threading.Event().wait(0.3)}, ends)


def test_an_unknown_mitigator_is_named() -> None:
    with pytest.raises(UsageError, match='unknown mitigator "nobody"'):
        mitigators.load_mitigator("nobody")
