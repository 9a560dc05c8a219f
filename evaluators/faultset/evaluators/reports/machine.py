"""The machine that an evaluation ran on, as far as numbers can depend on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict[str, str]:
    """Describe processor, memory and system in a few words each."""
    return {
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> str:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 2**20:.1f} GiB"
    return "unknown"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
