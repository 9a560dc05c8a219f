"""This machine as a platform with shorter phases, which leaves resources for other work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.hosts import Phases
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.host import LocalHost
from faultset.collector.platforms.local.platform import LocalPlatform
from faultset.collector.spec.app import AppSpec


class QuickMachinePlatform(LocalPlatform):
    """A platform that restarts failed containers ten times sooner than a cluster."""

    name = "quick-machine"


class QuickMachineHost(LocalHost):
    """A host that runs one episode at a time by default.

    Parameters
    ----------
    episodes
        Maximum number of concurrent episodes.
    """

    profiles: ClassVar[Mapping[str, Phases]] = {
        "quick": Phases(warmup_s=5.0, baseline_s=30.0, fault_s=30.0, cooldown_s=3.0),
        "standard": Phases(warmup_s=10.0, baseline_s=90.0, fault_s=90.0, cooldown_s=10.0),
    }

    def __init__(self, *, episodes: int = 1):
        self._episodes = episodes

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of this host."""
        return {"episodes": self._episodes}

    def episode_capacity(self) -> int:
        """Return the configured number of episodes, at most the capacity of the machine."""
        return min(self._episodes, super().episode_capacity())

    def create_platform(
        self, app: AppSpec, folder: Path, journal: Journal, *, episode: str, seed: int, step_s: float
    ) -> EpisodePlatform:
        """Return a platform for one episode."""
        return QuickMachinePlatform(app, folder, journal=journal, seed=seed, step_s=step_s, back_off_factor=0.1)
