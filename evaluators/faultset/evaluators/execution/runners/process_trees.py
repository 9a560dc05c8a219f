"""Inspect and kill a process together with all its descendants, detached ones included."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAX_SCANS = 50


def descendants(pid: int) -> list[int]:
    """Return all descendants of `pid`, parents first; processes that end during the call may be missing."""
    processes: list[int] = []
    stack = [pid]
    while stack:
        children = list(_children(stack.pop()))
        processes += children
        stack += children
    return processes


def kill_descendants(pid: int) -> None:
    """Kill all descendants of `pid`, repeating for 5 s until none is left that could start more."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        living = [child for child in descendants(pid) if not is_zombie(child)]
        if not living:
            return
        for child in living:
            kill(child)
        time.sleep(0.005)


def kill_marked(variable: str) -> None:
    """Kill all processes that were started with the environment variable NAME=value, until none is left."""
    for _ in range(_MAX_SCANS):
        processes = [pid for pid in _find_marked(variable) if pid != os.getpid()]
        if not processes:
            return
        for pid in processes:
            kill(pid)
        # a process may have started another one during the search
        time.sleep(0.02)


def _find_marked(variable: str) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def kill(pid: int) -> None:
    """Send SIGKILL; ignore a process that is already gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_zombie(pid: int) -> bool:
    """Return whether a process is gone or waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in {"Z", "X"}


def resident_bytes(pids: list[int]) -> int:
    """Return the resident memory of several processes; shared pages count once per process."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def proportional_bytes(pids: list[int]) -> int:
    """Return the memory of several processes with shared pages divided among them; slower to read."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
