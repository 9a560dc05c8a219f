"""This machine as a host of the embedded platform, and the checks of its requirements."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import psutil

from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.hosts import LONG, QUICK, STANDARD, Phases, PlatformHost, Requirement, unmet
from faultset.collector.platforms.journal import Journal
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError


class LocalHost(PlatformHost):
    """This machine; all processes of an episode end with their collector, so nothing is left to undo."""

    profiles: ClassVar[Mapping[str, Phases]] = {"quick": QUICK, "standard": STANDARD, "long": LONG}
    runs_code_of_folders: ClassVar[bool] = True
    runs_deployed_apps: ClassVar[bool] = False
    deploys_operators: ClassVar[bool] = True
    original_store_kinds: ClassVar[frozenset[str]] = frozenset({"memcached", "postgresql"})

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def requirements(self) -> list[Requirement]:
        """Check the system, Redis, addresses, memory, disk and cores."""
        return check_machine()

    def check(self) -> list[str]:
        """Raise PlatformError if this machine lacks a requirement; return an empty list otherwise."""
        for row in unmet(self.requirements()):
            raise PlatformError(f"the embedded platform needs {row.check}, but found {row.found}; {row.remedy}")
        return []

    def episode_capacity(self) -> int:
        """Return the default concurrency: one episode per core, capped by memory."""
        return episode_capacity()

    def original_servers(self, drivers: Collection[str]) -> dict[str, str]:
        from faultset.collector.runtime.stores import read_original_versions

        return read_original_versions(drivers)

    def create_platform(
        self, app: AppSpec, folder: Path, journal: Journal, *, episode: str, seed: int, step_s: float
    ) -> EpisodePlatform:
        from faultset.collector.platforms.local.platform import LocalPlatform

        return LocalPlatform(app, folder, journal=journal, seed=seed, step_s=step_s)


MIN_MEMORY_MIB = 700
MIN_DISK_MIB = 500
MEMORY_PER_EPISODE = 600 * 2**20


def episode_capacity() -> int:
    """Return the default number of concurrent episodes: one per core, capped by memory."""
    cores = len(os.sched_getaffinity(0))
    memory_capacity = int(psutil.virtual_memory().available * 0.8 / MEMORY_PER_EPISODE)
    return max(1, min(cores, memory_capacity))


def check_machine() -> list[Requirement]:
    return [
        _check_system(),
        _check_redis(),
        _list_original_stores(),
        _check_addresses(),
        _check_proc(),
        _check_memory(),
        _check_disk(),
        _count_cores(),
        _measure_load(),
    ]


def _check_system() -> Requirement:
    ok = sys.platform == "linux"
    return Requirement("Linux", ok, sys.platform, "collect on Linux; datasets and evaluation work everywhere")


def _check_redis() -> Requirement:
    from faultset.collector.runtime.stores.redis_driver import redis_programs

    try:
        return Requirement("Redis server", True, redis_programs().server, "")
    except PlatformError as error:
        return Requirement("Redis server", False, "none", str(error))


def _list_original_stores() -> Requirement:
    """List the servers that `--stores original` would use; they are optional."""
    from faultset.collector.runtime.stores import ORIGINAL_DRIVERS

    locations = (f"{role}: {driver.location() or 'none'}" for role, driver in ORIGINAL_DRIVERS.items())
    return Requirement("original stores", True, ", ".join(locations), "")


def _check_addresses() -> Requirement:
    try:
        with socket.socket() as probe:
            probe.bind(("127.200.1.1", 0))
    except OSError as error:
        return Requirement("addresses 127.0.0.0/8", False, str(error), "assign 127.0.0.0/8 to the loopback interface")
    return Requirement("addresses 127.0.0.0/8", True, "can be bound", "")


def _check_proc() -> Requirement:
    ok = Path(f"/proc/{os.getpid()}/stat").exists()
    return Requirement("/proc", ok, "readable" if ok else "absent", "mount proc on /proc")


def _check_memory() -> Requirement:
    free = psutil.virtual_memory().available // 2**20
    return Requirement("free memory", free >= MIN_MEMORY_MIB, f"{free} MiB", f"free at least {MIN_MEMORY_MIB} MiB")


def _check_disk() -> Requirement:
    folder = tempfile.gettempdir()
    free = psutil.disk_usage(folder).free // 2**20
    return Requirement(
        "free disk", free >= MIN_DISK_MIB, f"{free} MiB in {folder}", "free disk space or set TMPDIR to another disk"
    )


def _count_cores() -> Requirement:
    cores = len(os.sched_getaffinity(0))
    return Requirement("cores", True, f"{cores}; collect runs up to {episode_capacity()} episodes concurrently", "")


def _measure_load() -> Requirement:
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    state = f"load average {load:.1f} over the last minute"
    if load > cores:
        state += "; fewer episodes run concurrently, and disturbed ones are repeated"
    return Requirement("other work", True, state, "")
