"""How late a thread that wants to run every few milliseconds gets the processor."""

from __future__ import annotations

import threading
import time

_STEP_S = 0.05


class SchedulingDelay:
    """Measures in a thread of its own until closed."""

    def __init__(self) -> None:
        self._worst_s = 0.0
        self._closed = threading.Event()
        threading.Thread(target=self._measure, name="delay", daemon=True).start()

    def worst_s(self, *, reset: bool = False) -> float:
        """Return the worst delay since the last reset, in seconds."""
        worst_s = self._worst_s
        if reset:
            self._worst_s = 0.0
        return worst_s

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _measure(self) -> None:
        before = time.monotonic()
        while not self._closed.wait(_STEP_S):
            now = time.monotonic()
            self._worst_s = max(self._worst_s, now - before - _STEP_S)
            before = now
