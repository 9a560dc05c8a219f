"""What a campaign asks of a platform before, between and after its episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from faultset.collector.faults.registry import FaultSpec
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.spec.app import AppSpec


class Site(Protocol):
    """A machine or a cluster on which episodes can run."""

    def check(self) -> None:
        """Refuse what cannot work, before anything is begun; raise PlatformError with the remedy."""
        ...

    def default_jobs(self) -> int:
        """Return how many episodes run at a time without disturbing each other."""
        ...

    def refusals(self, faults: Sequence[FaultSpec]) -> dict[str, str]:
        """Return the faults that cannot be made here, with the reason."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """Return what another process needs to open the same site, as plain values."""
        ...

    def make(self, plan: Plan, app: AppSpec, folder: Path, journal: Journal) -> Platform:
        """Return a platform for one episode, ready to deploy."""
        ...

    def undo_abandoned(self, journal: Path) -> None:
        """Undo and remove what an episode left whose collector is dead; raise PlatformError when that fails."""
        ...

    def remove_strays(self) -> list[str]:
        """Remove what dead collectors of any machine left; return names."""
        ...
