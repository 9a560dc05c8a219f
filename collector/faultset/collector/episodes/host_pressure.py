"""How short of CPU this machine is, and what follows from it for deadlines."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

BUSY_SHARE = 0.8
"""Share of the time in which some process waits for a processor, from which on the machine counts as busy."""
LONGEST_FACTOR = 4.0
"""How many times as long as planned a deadline becomes at most."""

_PRESSURE = Path("/proc/pressure/cpu")
_TOTAL = re.compile(r"^some .*total=(\d+)", re.MULTILINE)
_SAMPLE_S = 0.5
_KEPT_S = 120.0
_STEP_S = 0.05


class CpuPressure:
    """Measures which share of the time processes waited for a processor, since it was made.

    The kernel's pressure stall information says so; where it has none, a thread measures how late it is woken.

    Parameters
    ----------
    waited_s
        Returns for how many seconds processes have waited so far; the machine's own measure when left out.
    clock
        Monotonic seconds.
    """

    def __init__(
        self, waited_s: Callable[[], float] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._waited_s = waited_s or (_stalled_s if _has_stall_information() else _Lag().waited_s)
        self._clock = clock
        self._samples: deque[tuple[float, float]] = deque()
        self.sample()

    def sample(self) -> None:
        """Take a measurement; to be called at least every few seconds."""
        now = self._clock()
        if self._samples and now - self._samples[-1][0] < _SAMPLE_S:
            return
        self._samples.append((now, self._waited_s()))
        while now - self._samples[0][0] > _KEPT_S:
            self._samples.popleft()

    def share(self, window_s: float = 10.0) -> float | None:
        """Return the share of the last `window_s`, at most 1; None while too little has been measured."""
        self.sample()
        end, waited = self._samples[-1]
        inside = [sample for sample in self._samples if sample[0] >= end - window_s]
        begin, before = inside[0]
        return None if end - begin < _SAMPLE_S else min(1.0, max(0.0, (waited - before) / (end - begin)))

    def is_busy(self, window_s: float = 10.0) -> bool:
        """Say whether the machine is known to be short of CPU."""
        return (self.share(window_s) or 0.0) >= BUSY_SHARE

    def scaled_s(self, deadline_s: float) -> float:
        """Return a deadline that allows for how much longer everything takes at present.

        >>> CpuPressure(lambda: 0.0).scaled_s(60.0)
        60.0
        """
        return deadline_s * min(LONGEST_FACTOR, 1.0 / max(1e-6, 1.0 - (self.share(60.0) or 0.0)))


def _has_stall_information() -> bool:
    try:
        return _TOTAL.search(_PRESSURE.read_text()) is not None
    except OSError:
        return False


def _stalled_s() -> float:
    found = _TOTAL.search(_PRESSURE.read_text())
    return int(found[1]) / 1e6 if found else 0.0


class _Lag:
    """Adds up how late a thread is woken that wants to run every few milliseconds."""

    def __init__(self) -> None:
        self._late_s = 0.0
        threading.Thread(target=self._measure, name="cpu-pressure", daemon=True).start()

    def waited_s(self) -> float:
        return self._late_s

    def _measure(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(_STEP_S)
            late_s = time.monotonic() - before - _STEP_S
            # what the timer itself needs is no wait for a processor
            if late_s > 0.1 * _STEP_S:
                self._late_s += late_s
