"""What this machine must have to run the embedded platform, checked one by one."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from faultset.collector.platforms.api.requirements import Row, requirement
from faultset.core.errors import PlatformError

LEAST_MEMORY_MIB = 700
LEAST_DISK_MIB = 500


def checks() -> list[Row]:
    """Return a row for each requirement."""
    return [_system(), _redis(), _addresses(), _proc(), _memory(), _disk(), _cores()]


def _system() -> Row:
    ok = sys.platform == "linux"
    return requirement("Linux", ok, sys.platform, "run it on Linux; datasets and evaluation work everywhere")


def _redis() -> Row:
    from faultset.collector.runtime.stores.redis_driver import redis_programs

    try:
        return requirement("Redis server", True, redis_programs().server, "")
    except PlatformError as error:
        return requirement("Redis server", False, "none", str(error))


def _addresses() -> Row:
    try:
        with socket.socket() as probe:
            probe.bind(("127.200.1.1", 0))
    except OSError as error:
        return requirement(
            "addresses 127.0.0.0/8", False, str(error), "let the loopback interface have all of 127.0.0.0/8"
        )
    return requirement("addresses 127.0.0.0/8", True, "can be bound", "")


def _proc() -> Row:
    ok = Path(f"/proc/{os.getpid()}/stat").exists()
    return requirement("/proc", ok, "readable" if ok else "absent", "mount proc on /proc")


def _memory() -> Row:
    import psutil

    free = psutil.virtual_memory().available // 2**20
    return requirement("free memory", free >= LEAST_MEMORY_MIB, f"{free} MiB", f"free {LEAST_MEMORY_MIB} MiB")


def _disk() -> Row:
    import psutil

    folder = tempfile.gettempdir()
    free = psutil.disk_usage(folder).free // 2**20
    return requirement(
        "free disk", free >= LEAST_DISK_MIB, f"{free} MiB in {folder}", "free some, or set TMPDIR to another disk"
    )


def _cores() -> Row:
    from faultset.collector.platforms.local.host import default_jobs

    cores = len(os.sched_getaffinity(0))
    return requirement("cores", True, f"{cores}; collect runs {default_jobs()} episodes at a time", "")
