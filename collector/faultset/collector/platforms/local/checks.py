"""What this machine must have to run the embedded platform, checked one by one."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from faultset.datasets.errors import PlatformError

LEAST_MEMORY_MIB = 700
LEAST_DISK_MIB = 500


def checks() -> list[dict[str, Any]]:
    """Return a row for each requirement: check, ok, found, remedy."""
    return [_system(), _redis(), _addresses(), _proc(), _memory(), _disk(), _cores()]


def _row(check: str, ok: bool, found: str, remedy: str) -> dict[str, Any]:
    return {"check": check, "ok": ok, "found": found, "remedy": "" if ok else remedy}


def _system() -> dict[str, Any]:
    ok = sys.platform == "linux"
    return _row("Linux", ok, sys.platform, "run it on Linux; datasets and evaluation work everywhere")


def _redis() -> dict[str, Any]:
    from faultset.collector.runtime.store import redis_programs

    try:
        return _row("Redis server", True, redis_programs().server, "")
    except PlatformError as error:
        return _row("Redis server", False, "none", str(error))


def _addresses() -> dict[str, Any]:
    try:
        with socket.socket() as probe:
            probe.bind(("127.200.1.1", 0))
    except OSError as error:
        return _row("addresses 127.0.0.0/8", False, str(error), "let the loopback interface have all of 127.0.0.0/8")
    return _row("addresses 127.0.0.0/8", True, "can be bound", "")


def _proc() -> dict[str, Any]:
    ok = Path(f"/proc/{os.getpid()}/stat").exists()
    return _row("/proc", ok, "readable" if ok else "absent", "mount proc on /proc")


def _memory() -> dict[str, Any]:
    import psutil

    free = psutil.virtual_memory().available // 2**20
    return _row("free memory", free >= LEAST_MEMORY_MIB, f"{free} MiB", f"free {LEAST_MEMORY_MIB} MiB")


def _disk() -> dict[str, Any]:
    import psutil

    folder = tempfile.gettempdir()
    free = psutil.disk_usage(folder).free // 2**20
    return _row(
        "free disk", free >= LEAST_DISK_MIB, f"{free} MiB in {folder}", "free some, or set TMPDIR to another disk"
    )


def _cores() -> dict[str, Any]:
    from faultset.collector.platforms.local.site import default_jobs

    cores = len(os.sched_getaffinity(0))
    return _row("cores", True, f"{cores}; collect runs {default_jobs()} episodes at a time", "")
