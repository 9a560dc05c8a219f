"""CPU shortage of this machine, and deadlines that allow for it."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

BUSY_SHARE = 0.8
"""A machine is busy if processes wait for CPU for this share of the time."""
MIN_FREE_CORES = 0.1
"""A machine is busy if fewer cores than this are free."""
CORES_OF_AN_EPISODE = 0.4
"""Free cores required to start one more episode; an episode uses 0.25 on average, and more in bursts."""
ROOM_WINDOW_S = 15.0
"""Seconds for which these cores must have been free."""
START_WINDOW_S = 5.0
"""Replaces `ROOM_WINDOW_S` while no running episode has reached its baseline."""
CORES_OF_A_STARTING_EPISODE = 0.3
"""Additional free cores for each episode whose load has not started."""
LONGEST_FACTOR = 4.0
"""Largest factor by which a deadline is extended."""

_PRESSURE_FILE = Path("/proc/pressure/cpu")
_GROUP_FILE = Path("/proc/self/cgroup")
_TOTAL = re.compile(r"^some .*total=(\d+)", re.MULTILINE)
_SAMPLE_S = 0.5
_HISTORY_S = 120.0
_STEP_S = 0.05


@dataclass(frozen=True, kw_only=True)
class CpuUse:
    """CPU use of a machine over some seconds."""

    waiting_share: float
    """Share of the time in which some process waited for CPU."""
    free_cores: float
    """Mean number of idle cores."""
    is_of_group: bool = False
    """Whether only this process's control group is measured, not the machine. Then `free_cores` is ignored, because
    cores that other groups use at a lower weight are free for this one.
    """

    @property
    def is_busy(self) -> bool:
        """Whether the machine, or this control group, is short of CPU."""
        return self.waiting_share >= BUSY_SHARE or (not self.is_of_group and self.free_cores < MIN_FREE_CORES)

    def has_room(self, without_load: int = 0) -> bool:
        """Return whether there is enough CPU for one more episode, given the number of episodes whose load has not
        started.
        """
        required_cores = CORES_OF_AN_EPISODE + without_load * CORES_OF_A_STARTING_EPISODE
        return self.waiting_share < BUSY_SHARE and (self.is_of_group or self.free_cores >= required_cores)

    def __str__(self) -> str:
        return f"{self.free_cores:.1f} cores are free, processes wait {self.waiting_share:.0%} of the time"


class CpuPressure:
    """Measures idle CPU and the time in which processes wait for CPU.

    The waiting time is the kernel's pressure stall information of this process's control group, or of the machine for a
    process in the root group. Without this information it is the wake-up delay of a thread. `waited_s` and `idle_s`
    return total times; by default, of this machine.
    """

    def __init__(
        self,
        waited_s: Callable[[], float] | None = None,
        idle_s: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = None if waited_s else _pressure_file()
        self._waited_s = waited_s or (_Lag().waited_s if self._file is None else partial(_read_stalled_s, self._file))
        self._idle_s = idle_s or _read_idle_s
        self._clock = clock
        self._samples: deque[tuple[float, float, float]] = deque()
        self.sample()

    def sample(self) -> None:
        """Take a measurement; call this every few seconds."""
        now = self._clock()
        if self._samples and now - self._samples[-1][0] < _SAMPLE_S:
            return
        self._samples.append((now, self._waited_s(), self._idle_s()))
        while now - self._samples[0][0] > _HISTORY_S:
            self._samples.popleft()

    def use(self, window_s: float = 10.0) -> CpuUse | None:
        """Return the CPU use of the last `window_s`; None until there are enough measurements."""
        self.sample()
        end, waited_s, idle_s = self._samples[-1]
        start, waited_before_s, idle_before_s = next(sample for sample in self._samples if sample[0] >= end - window_s)
        if end - start < _SAMPLE_S:
            return None
        return CpuUse(
            waiting_share=min(1.0, max(0.0, (waited_s - waited_before_s) / (end - start))),
            free_cores=max(0.0, (idle_s - idle_before_s) / (end - start)),
            is_of_group=self._file not in (None, _PRESSURE_FILE),
        )

    def is_busy(self, window_s: float = 10.0) -> bool:
        use = self.use(window_s)
        return use is not None and use.is_busy

    def scaled_s(self, deadline_s: float) -> float:
        """Scale a deadline by the current CPU shortage.

        >>> CpuPressure(lambda: 0.0).scaled_s(60.0)
        60.0
        """
        use = self.use(60.0)
        return deadline_s * min(LONGEST_FACTOR, 1.0 / max(1e-6, 1.0 - (use.waiting_share if use else 0.0)))


def _pressure_file() -> Path | None:
    """Return the file with the pressure of this process's control group or of the machine; None if there is none."""
    for file in (*_group_files(), _PRESSURE_FILE):
        try:
            if _TOTAL.search(file.read_text()):
                return file
        except OSError:
            continue
    return None


def _group_files() -> list[Path]:
    """Return the pressure file of this process's control group; empty if it is in the root group."""
    try:
        group = re.search(r"^0::/(.+)$", _GROUP_FILE.read_text(), re.MULTILINE)
    except OSError:
        return []
    mounts = [mount.mountpoint for mount in psutil.disk_partitions(all=True) if mount.fstype == "cgroup2"]
    return [Path(mount, group[1], "cpu.pressure") for mount in mounts] if group else []


def _read_stalled_s(file: Path) -> float:
    match = _TOTAL.search(file.read_text())
    return int(match[1]) / 1e6 if match else 0.0


def _read_idle_s() -> float:
    times = psutil.cpu_times()
    # a core whose processes all wait for a disk is free
    return times.idle + getattr(times, "iowait", 0.0)


class _Lag:
    """Adds up the wake-up delays of a thread."""

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
            # smaller delays come from the timer itself
            if late_s > 0.1 * _STEP_S:
                self._late_s += late_s
