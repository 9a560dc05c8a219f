"""This machine as a host of the embedded platform."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.hosts import LONG, QUICK, STANDARD, Phases, Requirement, unmet
from faultset.collector.platforms.journal import Journal
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError


class LocalHost:
    """This machine; all processes of an episode end with their collector, so nothing is left to undo."""

    profiles: ClassVar[Mapping[str, Phases]] = {"quick": QUICK, "standard": STANDARD, "long": LONG}
    runs_code_of_folders: ClassVar[bool] = True
    runs_deployed_apps: ClassVar[bool] = False
    deploys_operators: ClassVar[bool] = True
    original_store_kinds: ClassVar[frozenset[str]] = frozenset({"memcached", "postgresql"})

    @property
    def settings(self) -> dict[str, Any]:
        """Return no settings, because there is only one machine."""
        return {}

    def requirements(self) -> list[Requirement]:
        """Check the system, Redis, addresses, memory, disk and cores."""
        from faultset.collector.platforms.local.checks import check_machine

        return check_machine()

    def check(self) -> list[str]:
        """Raise PlatformError if this machine lacks a requirement; return an empty list otherwise."""
        for row in unmet(self.requirements()):
            raise PlatformError(f"the embedded platform needs {row.check}, but found {row.found}; {row.remedy}")
        return []

    def episode_capacity(self) -> int:
        """Return the default concurrency: one episode per core, capped by memory."""
        from faultset.collector.platforms.local.checks import episode_capacity

        return episode_capacity()

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return an empty mapping, because this machine supports all capabilities."""
        return {}

    def original_servers(self, drivers: Collection[str]) -> dict[str, str]:
        """Return the names and versions of servers installed on this machine."""
        from faultset.collector.runtime.stores import read_original_versions

        return read_original_versions(drivers)

    def create_platform(
        self, app: AppSpec, folder: Path, journal: Journal, *, episode: str, seed: int, step_s: float
    ) -> EpisodePlatform:
        """Return a platform for one episode."""
        from faultset.collector.platforms.local.platform import LocalPlatform

        return LocalPlatform(app, folder, journal=journal, seed=seed, step_s=step_s)

    def await_removal(self, episodes: Collection[str]) -> None:
        """Do nothing, because teardown leaves nothing behind."""

    def undo_abandoned(self, journal: Path) -> None:
        """Do nothing, because the processes ended with their collector."""

    def remove_orphans(self) -> list[str]:
        """Return an empty list, because processes never outlive their collector."""
        return []
