"""Wait for a condition by polling."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def poll_until(check: Callable[[], T], *, timeout_s: float, pause_s: float = 0.05) -> T:
    """Call `check` until its result is true or the time is up; return the last result.

    >>> poll_until(lambda: "ready", timeout_s=1.0)
    'ready'
    """
    deadline = time.monotonic() + timeout_s
    while not (result := check()) and time.monotonic() <= deadline:
        time.sleep(pause_s)
    return result
