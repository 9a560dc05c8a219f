"""The result of a campaign, and its file in the dataset."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.options import campaign_options
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import CampaignRequest
from faultset.core.errors import DataError, PlatformError
from faultset.core.files import replace_text
from faultset.core.reading.documents import checked, read_document
from faultset.core.suggestions import suggest
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.labels import read_label

CAMPAIGNS = "campaigns"
LIMIT_BYTES = 64 << 20
"""Size of a campaign's file, which holds about 600 bytes for each plan."""


class _CampaignRecord(BaseModel):
    """What a campaign's file must hold."""

    campaign: str
    request: CampaignRequest
    settings: dict[str, Any]
    plans: list[Plan]
    refused: dict[str, str]
    failures: dict[str, str]
    code: dict[str, str]


def campaign_file(root: Path, campaign: str) -> Path:
    """Return the path of a campaign's file in a dataset."""
    return root / CAMPAIGNS / f"{campaign}.json"


def campaign_ids(root: Path) -> list[str]:
    """Return the ids of the campaigns that have added to a dataset."""
    return sorted(path.stem for path in (root / CAMPAIGNS).glob("*.json"))


def recorded_outcome(root: Path, episode: str) -> EpisodeOutcome:
    """Return the outcome of an episode that the dataset has."""
    return EpisodeOutcome(episode=episode, verdict=read_label(root / EPISODES / episode).verdict)


def write_campaign(
    root: Path,
    campaign: str,
    request: CampaignRequest,
    plans: Sequence[Plan],
    *,
    unsupported: Mapping[str, str],
    settings: Mapping[str, Any],
    code: Mapping[str, str] | None = None,
) -> None:
    """Write a campaign's file, whole or not at all; a file that exists stays as it is.

    Parameters
    ----------
    unsupported
        Faults that were requested and that the platform cannot inject, with the reason.
    settings
        Settings of the platform that were given.
    code
        Which code the campaign runs.
    """
    path = campaign_file(root, campaign)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        record = {
            "campaign": campaign,
            "request": asdict(request),
            "settings": dict(settings),
            "code": dict(code or {}),
            "plans": [json.loads(plan.to_json()) for plan in plans],
            "refused": dict(unsupported),
            "failures": {},
        }
        _replace(path, record)


def code_changes(root: Path, request: CampaignRequest, code: Mapping[str, str]) -> list[str]:
    """Name what has other code than in every campaign of the same request that the dataset has."""
    earlier = [
        record["code"]
        for record in (_read(root, name) for name in campaign_ids(root))
        if record["code"] and checked(record["request"], CampaignRequest, "a request") == request
    ]
    if not earlier or dict(code) in earlier:
        return []
    return sorted(what for what in code if all(one.get(what) != code[what] for one in earlier))


def record_failures(root: Path, campaign: str, failures: Mapping[str, str]) -> None:
    """Note in a campaign's file which episodes failed, and why."""
    _replace(campaign_file(root, campaign), {**_read(root, campaign), "failures": dict(failures)})


def read_campaign(root: Path, campaign: str) -> dict[str, Any]:
    """Return what a campaign's file holds.

    Raises
    ------
    DataError
        The dataset has no such campaign, or its file is damaged.
    """
    known = campaign_ids(root)
    if campaign not in known:
        raise DataError(f'{root} has no campaign "{campaign}"; {suggest(campaign, known)}')
    return _read(root, campaign)


def as_options(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a campaign as the options of `collect` that repeat it: option name to value, names without dashes."""
    request = dict(record["request"])
    phases = request.pop("phases")
    if request["profile"] == "custom":
        del request["profile"]
        request |= phases
    options = {}
    for option in campaign_options().values():
        value = request.get(option.name)
        options[option.flag] = f"{value:.12g}s" if option.is_length and value is not None else value
    options |= {name.replace("_", "-"): value for name, value in record["settings"].items()}
    return {name: value for name, value in options.items() if value not in (None, "", [], ())}


def _read(root: Path, campaign: str) -> dict[str, Any]:
    path = campaign_file(root, campaign)
    record = read_document(path, dict[str, Any], below=root, limit_bytes=LIMIT_BYTES)
    checked(record, _CampaignRecord, str(path))
    return record


def _replace(path: Path, record: Mapping[str, Any]) -> None:
    text = json.dumps(record, indent=1, sort_keys=True)
    if len(text.encode()) > LIMIT_BYTES:
        raise DataError(
            f"a campaign of {len(record['plans'])} episodes has a file of {len(text) / 2**20:.0f} MiB, and at most "
            f"{LIMIT_BYTES >> 20} MiB are read again; collect them in several campaigns, with another --seed each"
        )
    replace_text(path, text)


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
