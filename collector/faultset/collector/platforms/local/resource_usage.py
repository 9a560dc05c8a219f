"""Read the CPU and memory usage of containers from /proc, and enforce CPU quotas without privileges.

Quotas have periods of 100 ms, like the kernel's CFS bandwidth control. A container that has used up its quota is
suspended with SIGSTOP until the period ends. Usage beyond the quota is deducted from later periods, so that the mean
never exceeds the limit.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PERIOD_S = 0.1
_SHORTEST_CHECK_S = 0.002


@dataclass
class Quota:
    """The CPU quota of a container; the caller suspends and resumes the container.

    Parameters
    ----------
    limit
        Cores that the container may use; None for no limit.
    cores
        Cores of the machine; a limit equal to or above this number is not enforced.
    """

    limit: float | None
    cores: int
    periods: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0
    stopped: bool = False
    is_near_limit: bool = False
    _used_at_start: float = 0.0
    _balance: float = math.inf
    _stopped_at: float = 0.0

    def begin(self, now: float, used_s: float) -> bool | None:
        """Start the next period; return True to suspend the container, False to resume it, None for no change.

        Parameters
        ----------
        used_s
            CPU seconds that the container has used since its start.
        """
        spent = used_s - self._used_at_start
        self._used_at_start = used_s
        if self.limit is None:
            return self._resume(now)
        self.periods += spent > 0 or self.stopped
        if self.limit >= self.cores:
            return self._resume(now)
        quota = self.limit * PERIOD_S
        self._balance = min(0.0, self._balance - spent) + quota
        self.is_near_limit = spent > 0.4 * quota or self.stopped or self._balance < quota
        return self._stop(now) if self._balance <= 0 else self._resume(now)

    def check(self, now: float, used_s: float) -> bool | None:
        """Check usage within a period; return True to suspend the container, None for no change."""
        if not self._must_check:
            return None
        return self._stop(now) if used_s - self._used_at_start >= self._balance else None

    def next_check_s(self, used_s: float) -> float | None:
        """Return the minimum number of seconds until the quota can be used up; None if no check is needed."""
        if not self._must_check:
            return None
        remaining_s = self._balance - (used_s - self._used_at_start)
        return max(_SHORTEST_CHECK_S, remaining_s / self.cores)

    @property
    def _must_check(self) -> bool:
        return self.is_near_limit and not self.stopped and self.limit is not None and self.limit < self.cores

    def throttled_so_far(self, now: float) -> float:
        """Return how many seconds the container has been stopped."""
        return self.throttled_s + (now - self._stopped_at if self.stopped else 0.0)

    def _stop(self, now: float) -> bool | None:
        self.throttled_periods += 1
        if self.stopped:
            return None
        self.stopped, self._stopped_at = True, now
        return True

    def _resume(self, now: float) -> bool | None:
        if not self.stopped:
            return None
        self.throttled_s += now - self._stopped_at
        self.stopped = False
        return False


_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CPUCLOCK_SCHED = 2

MARK = "FAULTSET_CONTAINER"
"""Environment variable that names the container of a process."""


def read_cpu_ns(pid: int) -> int:
    """Return the CPU time of a process in nanoseconds; 0 if it has ended."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0


class ProcessTable:
    """Finds the processes of containers, including processes that changed their group.

    Parameters
    ----------
    root
        Process whose descendants may belong to a container; it adopts orphans.
    """

    def __init__(self, root: int):
        self._root = root
        self._foreign: set[int] = set()

    def members(self, groups: Mapping[int, str]) -> dict[int, list[int]]:
        """Return the live processes of each group.

        Parameters
        ----------
        groups
            Process group -> value of the environment variable `MARK` in the processes of the container.
        """
        members: dict[int, list[int]] = {group: [] for group in groups}
        by_mark = {mark: group for group, mark in groups.items()}
        pids = _list_processes()
        for pid in pids:
            try:
                group = os.getpgid(pid)
            except OSError:
                continue
            if group in members:
                members[group].append(pid)
            elif pid not in self._foreign:
                mark = read_mark(pid) if self._is_ours(pid) else None
                if mark in by_mark:
                    members[by_mark[mark]].append(pid)
                else:
                    self._foreign.add(pid)
        self._foreign &= set(pids)
        return members

    def descendants(self) -> list[int]:
        return [pid for pid in _list_processes() if pid != self._root and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        while pid > 1:
            pid = _read_parent(pid)
            if pid == self._root:
                return True
        return False


def _list_processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _read_parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def read_mark(pid: int) -> str | None:
    """Return the container mark in the environment of a process, or None."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    return next((v[len(prefix) :].decode() for v in variables if v.startswith(prefix)), None)


def read_resident_bytes(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process, and how much of it is not backed by files."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0, 0
    return int(resident) * _PAGE_BYTES, (int(resident) - int(shared)) * _PAGE_BYTES


def find_leftover_processes(folder: Path) -> list[int]:
    """Return the processes of containers whose working folder is below `folder`."""
    pids = []
    for pid in _list_processes():
        try:
            inside = Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
        except OSError:
            continue
        if inside and read_mark(pid) is not None:
            pids.append(pid)
    return pids


@dataclass(frozen=True, kw_only=True)
class ProcessUse:
    """Resource usage of a process."""

    cpu_s: float
    user_s: float
    system_s: float
    resident: int
    anonymous: int
    threads: int
    descriptors: int
    read_bytes: int
    written_bytes: int


def read_process_use(pid: int) -> ProcessUse | None:
    """Return the usage of a process and of its ended children; None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 18 or fields[0] in (b"Z", b"X"):
        return None
    user, system, user_ended, system_ended = (int(value) * _TICK_S for value in fields[11:15])
    resident, anonymous = read_resident_bytes(pid)
    read_bytes, written_bytes = _read_disk_bytes(pid)
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        descriptors = 0
    return ProcessUse(
        cpu_s=read_cpu_ns(pid) / 1e9 + user_ended + system_ended,
        user_s=user + user_ended,
        system_s=system + system_ended,
        resident=resident,
        anonymous=anonymous,
        threads=int(fields[17]),
        descriptors=descriptors,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
    )


def _read_disk_bytes(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            values = dict(line.split(b": ") for line in file.read().splitlines())
    except (OSError, ValueError):
        return 0, 0
    return int(values.get(b"read_bytes", 0)), int(values.get(b"write_bytes", 0))
