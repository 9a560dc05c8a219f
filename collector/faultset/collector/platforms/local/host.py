"""This machine as a place for episodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from faultset.collector.faults.registry import FaultSpec
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.api.requirements import unmet
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError

EPISODES_PER_CORE = 2
MEMORY_PER_EPISODE = 600 * 2**20


def default_jobs() -> int:
    """Return how many episodes this machine runs at a time without disturbing each other."""
    cores = len(os.sched_getaffinity(0))
    room = int(psutil.virtual_memory().available * 0.8 / MEMORY_PER_EPISODE)
    return max(1, min(cores * EPISODES_PER_CORE, room))


class LocalSite:
    """See `Site`; processes die with their collector, so that there is never anything to undo afterwards."""

    def __init__(self, settings: Mapping[str, Any]):
        self._settings = settings

    def check(self) -> None:
        """Refuse a machine that lacks something."""
        from faultset.collector.platforms.local.checks import checks

        for row in unmet(checks()):
            raise PlatformError(f"{row['check']} is needed, but found {row['found']}; {row['remedy']}")

    def default_jobs(self) -> int:
        """Return two for each core, as far as there is memory."""
        return default_jobs()

    def refusals(self, faults: Sequence[FaultSpec]) -> dict[str, str]:
        """Return nothing: all faults can be made here."""
        return {}

    @property
    def settings(self) -> dict[str, Any]:
        """Return what it was opened with."""
        return dict(self._settings)

    def make(self, plan: Plan, app: AppSpec, folder: Path, journal: Journal) -> Platform:
        """Return a platform for one episode."""
        from faultset.collector.platforms.local.platform import LocalPlatform

        return LocalPlatform(app, folder, journal=journal, seed=plan.seed, step_s=plan.step_s, **self._settings)

    def undo_abandoned(self, journal: Path) -> None:
        """Do nothing."""

    def remove_strays(self) -> list[str]:
        """Return nothing."""
        return []
