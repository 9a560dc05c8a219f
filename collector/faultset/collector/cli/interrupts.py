"""Signals to stop, while something is under way that has to be undone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Yield a list that holds the signals to stop that were received, instead of being ended by them."""
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if not received:
            print("stopping: undoing what was injected and removing what was deployed", file=sys.stderr)
        received.append(number)

    with _handled(stop, signal.SIGINT, signal.SIGTERM):
        yield received


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM as for SIGINT."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[[int, Any], None], *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
