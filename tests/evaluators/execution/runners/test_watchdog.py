"""A block that takes too long is answered once, and the watch ends with its owner."""

from __future__ import annotations

import threading
import time

from faultset.evaluators.execution.runners.watchdog import Watchdog


def test_only_a_block_that_takes_too_long_is_answered_and_that_once() -> None:
    answered: list[float] = []
    watchdog = Watchdog(0.2, lambda: answered.append(time.monotonic()))
    for _ in range(8):
        with watchdog:
            time.sleep(0.05)
    assert answered == []
    began = time.monotonic()
    with watchdog:
        time.sleep(0.6)
    watchdog.close()
    assert len(answered) == 1
    assert 0.2 <= answered[0] - began < 0.6


def test_all_blocks_share_a_thread_that_ends_with_the_watchdog() -> None:
    before = threading.enumerate()
    watchdog = Watchdog(0.1, lambda: None)
    for _ in range(3):
        with watchdog:
            pass
    (thread,) = (one for one in threading.enumerate() if one.name == "watchdog" and one not in before)
    watchdog.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
