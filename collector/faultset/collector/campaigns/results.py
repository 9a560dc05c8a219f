"""What came of a campaign."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.plans.plan import Plan
from faultset.core.errors import DataError, PlatformError


@dataclass(frozen=True, kw_only=True)
class CampaignResult:
    """What came of a campaign.

    Attributes
    ----------
    root
        The dataset's folder; of a dataset behind a URL its local part, in which episodes have no telemetry.
    location
        What people call the dataset: a path or a URL.
    campaign
        Id of the campaign; its file is `campaigns/<id>.json` in the dataset.
    version
        The dataset's newest version; empty when there is none.
    plans
        The planned episodes, in the order in which they were begun.
    episodes
        A result for each planned episode that has ended, in any run of the campaign.
    unsupported
        Faults that the platform cannot inject and that were left out, with the reason.
    interrupted
        Whether the campaign was stopped before its end; no version was written then.
    wall_s
        Length of this run in seconds.
    """

    root: Path
    location: str
    campaign: str
    version: str
    plans: tuple[Plan, ...]
    episodes: tuple[EpisodeResult, ...]
    unsupported: Mapping[str, str]
    interrupted: bool
    wall_s: float

    @property
    def failures(self) -> dict[str, str]:
        """Episodes that are void, with the reason."""
        return {result.episode: result.failure for result in self.episodes if result.failure}

    def raise_for_failures(self) -> None:
        """Raise an error that names the first failure, if there is one.

        Raises
        ------
        DataError
            All failures are such errors, for instance a full disk.
        PlatformError
            There are other failures.
        """
        failed = [result for result in self.episodes if result.failure]
        if not failed:
            return
        first = failed[0]
        error = DataError if {r.outcome.exit_code for r in failed} == {DataError.exit_code} else PlatformError
        logs = f" (logs in {first.outcome.logs})" if first.outcome.logs else ""
        raise error(
            f"{len(failed)} of {len(self.plans)} episodes failed after {first.attempts} "
            f"{'attempt' if first.attempts == 1 else 'attempts'}; first: {first.failure}{logs}; "
            f"run the same command again to retry them"
        )


def this_machine() -> dict[str, Any]:
    """Return what a version's provenance says of a machine on which episodes ran."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
