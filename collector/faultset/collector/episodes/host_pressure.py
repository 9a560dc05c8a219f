"""How short of CPU this machine is, and what follows from it for deadlines."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

BUSY_SHARE = 0.8
"""Share of the time in which some process waits for a processor, from which on the machine counts as busy."""
LEAST_FREE_CORES = 0.1
"""How much of one core is free at least on a machine that does not count as busy."""
CORES_OF_AN_EPISODE = 0.4
"""What has to be free for one more episode beside others: it needs a quarter of a core, and more in bursts."""
ROOM_WINDOW_S = 15.0
"""For how long that has to be free."""
START_WINDOW_S = 5.0
"""For how long while all episodes still start: what slows them down then is over before their baselines begin."""
CORES_OF_A_STARTING_EPISODE = 0.3
"""What must be free besides for each that starts, whose load is not felt yet."""
LONGEST_FACTOR = 4.0
"""How many times as long as planned a deadline becomes at most."""

_PRESSURE = Path("/proc/pressure/cpu")
_TOTAL = re.compile(r"^some .*total=(\d+)", re.MULTILINE)
_SAMPLE_S = 0.5
_KEPT_S = 120.0
_STEP_S = 0.05


@dataclass(frozen=True, kw_only=True)
class CpuUse:
    """What of the machine's processors was used and missed in the last seconds.

    Attributes
    ----------
    waiting_share
        Share of the time in which some process waited for a processor.
    free_cores
        Cores that nothing used.
    """

    waiting_share: float
    free_cores: float

    @property
    def is_busy(self) -> bool:
        """Whether the machine counts as short of CPU."""
        return self.waiting_share >= BUSY_SHARE or self.free_cores < LEAST_FREE_CORES

    def has_room(self, without_load: int = 0) -> bool:
        """Say whether one more episode finds enough CPU beside those that run.

        Parameters
        ----------
        without_load
            How many of them had no load yet.
        """
        needed = CORES_OF_AN_EPISODE + without_load * CORES_OF_A_STARTING_EPISODE
        return self.waiting_share < BUSY_SHARE and self.free_cores >= needed

    def __str__(self) -> str:
        return f"{self.free_cores:.1f} cores are free, processes wait {self.waiting_share:.0%} of the time"


class CpuPressure:
    """Measures how much of the processors is free and how long processes waited for one, since it was made.

    The kernel's pressure stall information says how long; where it has none, a thread measures how late it is woken.

    Parameters
    ----------
    waited_s
        Returns for how many seconds processes have waited so far; the machine's own measure when left out.
    idle_s
        Returns for how many seconds processors were idle so far, all added up; the machine's own when left out.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        waited_s: Callable[[], float] | None = None,
        idle_s: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waited_s = waited_s or (_stalled_s if _has_stall_information() else _Lag().waited_s)
        self._idle_s = idle_s or _idle_s
        self._clock = clock
        self._samples: deque[tuple[float, float, float]] = deque()
        self.sample()

    def sample(self) -> None:
        """Take a measurement; to be called at least every few seconds."""
        now = self._clock()
        if self._samples and now - self._samples[-1][0] < _SAMPLE_S:
            return
        self._samples.append((now, self._waited_s(), self._idle_s()))
        while now - self._samples[0][0] > _KEPT_S:
            self._samples.popleft()

    def use(self, window_s: float = 10.0) -> CpuUse | None:
        """Return what was used in the last `window_s`; None while too little has been measured."""
        self.sample()
        end, waited_s, idle_s = self._samples[-1]
        begin, waited_before_s, idle_before_s = next(one for one in self._samples if one[0] >= end - window_s)
        if end - begin < _SAMPLE_S:
            return None
        return CpuUse(
            waiting_share=min(1.0, max(0.0, (waited_s - waited_before_s) / (end - begin))),
            free_cores=max(0.0, (idle_s - idle_before_s) / (end - begin)),
        )

    def is_busy(self, window_s: float = 10.0) -> bool:
        """Say whether the machine is known to be short of CPU."""
        use = self.use(window_s)
        return use is not None and use.is_busy

    def scaled_s(self, deadline_s: float) -> float:
        """Return a deadline that allows for how much longer everything takes at present.

        >>> CpuPressure(lambda: 0.0).scaled_s(60.0)
        60.0
        """
        use = self.use(60.0)
        return deadline_s * min(LONGEST_FACTOR, 1.0 / max(1e-6, 1.0 - (use.waiting_share if use else 0.0)))


def _has_stall_information() -> bool:
    try:
        return _TOTAL.search(_PRESSURE.read_text()) is not None
    except OSError:
        return False


def _stalled_s() -> float:
    found = _TOTAL.search(_PRESSURE.read_text())
    return int(found[1]) / 1e6 if found else 0.0


def _idle_s() -> float:
    times = psutil.cpu_times()
    # a processor whose processes all wait for a disk is free for others
    return times.idle + getattr(times, "iowait", 0.0)


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
