"""This machine as a host of episodes."""

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
    """See `PlatformHost`; processes die with their collector, so that there is never anything to undo afterwards."""

    profiles: ClassVar[Mapping[str, Phases]] = {"quick": QUICK, "standard": STANDARD, "long": LONG}
    runs_code_of_folders: ClassVar[bool] = True
    runs_deployed_apps: ClassVar[bool] = False
    deploys_operators: ClassVar[bool] = True
    original_store_kinds: ClassVar[frozenset[str]] = frozenset({"memcached", "postgresql"})

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing: there is only one machine."""
        return {}

    def requirements(self) -> list[Requirement]:
        """Look at the system, Redis, addresses, memory, disk and cores."""
        from faultset.collector.platforms.local.checks import check_machine

        return check_machine()

    def check(self) -> list[str]:
        """Raise PlatformError when this machine lacks something; there is nothing to say otherwise."""
        for row in unmet(self.requirements()):
            raise PlatformError(f"{row.check} is needed, but found {row.found}; {row.remedy}")
        return []

    def episode_capacity(self) -> int:
        """Return three for each core and one, as far as there is memory; the scheduler begins as many as find CPU."""
        from faultset.collector.platforms.local.checks import episode_capacity

        return episode_capacity()

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return nothing: all can be made here."""
        return {}

    def original_servers(self, drivers: Collection[str]) -> dict[str, str]:
        """Return name and version of servers that are installed on this machine."""
        from faultset.collector.runtime.stores.drivers import original_versions

        return original_versions(drivers)

    def create_platform(
        self, app: AppSpec, folder: Path, journal: Journal, *, episode: str, seed: int, step_s: float
    ) -> EpisodePlatform:
        """Return a platform for one episode."""
        from faultset.collector.platforms.local.platform import LocalPlatform

        return LocalPlatform(app, folder, journal=journal, seed=seed, step_s=step_s)

    def await_removal(self, episodes: Collection[str]) -> None:
        """Do nothing: what an episode has ended is gone."""

    def undo_abandoned(self, journal: Path) -> None:
        """Do nothing."""

    def remove_orphans(self) -> list[str]:
        """Return nothing."""
        return []
