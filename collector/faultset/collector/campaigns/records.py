"""The result of a campaign and its file in the dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import VoidAttempt
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.options import campaign_options
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import CampaignRequest
from faultset.collector.recordings.chunks import recorded_s
from faultset.core.documents import check_type, read_document
from faultset.core.errors import DataError, PlatformError, suggest
from faultset.core.files import replace_text
from faultset.core.printable import count_text
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.labels import read_label

CAMPAIGNS = "campaigns"
LIMIT_BYTES = 64 << 20
"""Largest size of a campaign's file, which holds about 600 bytes per plan."""


class _CampaignRecord(BaseModel):
    """Content of a campaign's file."""

    campaign: str
    request: CampaignRequest | None
    as_in: str | None
    settings: dict[str, Any]
    plans: list[Plan]
    refused: dict[str, str]
    failures: dict[str, str]
    code: dict[str, str]
    void_attempts: list[VoidAttempt]


def campaign_file(root: Path, campaign: str) -> Path:
    """Return the path of a campaign's file in a dataset."""
    return root / CAMPAIGNS / f"{campaign}.json"


def campaign_ids(root: Path) -> list[str]:
    """Return the ids of all campaigns of a dataset."""
    return sorted(path.stem for path in (root / CAMPAIGNS).glob("*.json"))


def read_outcome(root: Path, episode: str) -> EpisodeOutcome:
    """Return the outcome of an episode in the dataset."""
    return EpisodeOutcome(episode=episode, verdict=read_label(root / EPISODES / episode).verdict)


def is_collected(root: Path, plan: Plan) -> bool:
    """Return whether the dataset has an episode, or a recording in its full length."""
    if plan.recording is None:
        return (root / EPISODES / plan.episode).exists()
    return recorded_s(root, plan.episode) >= plan.recording.duration_s - 1.0


def collected_outcome(root: Path, plan: Plan) -> EpisodeOutcome:
    """Return the outcome of an episode or recording in the dataset."""
    return read_outcome(root, plan.episode) if plan.recording is None else EpisodeOutcome(episode=plan.episode)


def write_campaign(
    root: Path,
    campaign: str,
    request: CampaignRequest | None,
    plans: Sequence[Plan],
    *,
    as_in: str | None = None,
    unsupported: Mapping[str, str],
    settings: Mapping[str, Any],
    code: Mapping[str, str] | None = None,
) -> None:
    """Write a campaign's file atomically, unless it exists.

    Parameters
    ----------
    request
        None if the plans come from an earlier campaign.
    as_in
        File or folder from which the plans of an earlier campaign were read.
    unsupported
        Faults that were requested and that the platform cannot inject, with the reason.
    settings
        Settings of the platform.
    code
        Code that the campaign runs; see `campaign_code`.
    """
    path = campaign_file(root, campaign)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        record = {
            "campaign": campaign,
            "request": None if request is None else asdict(request),
            "as_in": as_in,
            "settings": dict(settings),
            "code": dict(code or {}),
            "plans": [json.loads(plan.to_json()) for plan in plans],
            "refused": dict(unsupported),
            "failures": {},
            "void_attempts": [],
        }
        _write_record(path, record)


def _has_request(record: Mapping[str, Any], request: CampaignRequest | None) -> bool:
    recorded = record["request"]
    return (None if recorded is None else check_type(recorded, CampaignRequest, "a request")) == request


def code_changes(root: Path, request: CampaignRequest | None, code: Mapping[str, str]) -> list[str]:
    """Return the names of code that differs from that of all earlier campaigns with the same request."""
    earlier = [
        record["code"]
        for record in (_read(root, name) for name in campaign_ids(root))
        if record["code"] and _has_request(record, request)
    ]
    if not earlier or dict(code) in earlier:
        return []
    return sorted(name for name in code if all(other.get(name) != code[name] for other in earlier))


def record_failures(
    root: Path, campaign: str, failures: Mapping[str, str], voids: Iterable[VoidAttempt] = ()
) -> tuple[VoidAttempt, ...]:
    """Write failed episodes and further void attempts into a campaign's file; return all its void attempts."""
    record = _read(root, campaign)
    attempts = [*record["void_attempts"], *(asdict(void) for void in voids)]
    _write_record(campaign_file(root, campaign), {**record, "failures": dict(failures), "void_attempts": attempts})
    return tuple(VoidAttempt(**attempt) for attempt in attempts)


def read_campaign(root: Path, campaign: str) -> dict[str, Any]:
    """Return the content of a campaign's file.

    Raises
    ------
    DataError
        The dataset has no such campaign, or its file is damaged.
    """
    ids = campaign_ids(root)
    if campaign not in ids:
        raise DataError(f'{root} has no campaign "{campaign}"; {suggest(campaign, ids)}')
    return _read(root, campaign)


def as_options(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `collect` that repeat a campaign, by name without dashes."""
    options: dict[str, Any] = {"as-in": record["as_in"]}
    request = dict(record["request"] or {})
    phases = request.pop("phases", {})
    if request.get("profile") == "custom":
        del request["profile"]
        request |= phases
    for option in campaign_options().values():
        value = request.get(option.name)
        options[option.flag] = f"{value:.12g}s" if option.is_length and value is not None else value
    options |= {name.replace("_", "-"): value for name, value in record["settings"].items()}
    return {name: value for name, value in options.items() if value not in (None, "", [], ())}


def _read(root: Path, campaign: str) -> dict[str, Any]:
    path = campaign_file(root, campaign)
    record = read_document(path, dict[str, Any], below=root, limit_bytes=LIMIT_BYTES)
    check_type(record, _CampaignRecord, str(path))
    return record


def _write_record(path: Path, record: Mapping[str, Any]) -> None:
    text = json.dumps(record, indent=1, sort_keys=True)
    if len(text.encode()) > LIMIT_BYTES:
        raise DataError(
            f"a campaign's file must have at most {LIMIT_BYTES >> 20} MiB, but {len(record['plans'])} episodes need "
            f"{len(text) / 2**20:.0f} MiB. Collect them in several campaigns, each with another --seed"
        )
    replace_text(path, text)


@dataclass(frozen=True, kw_only=True)
class CampaignResult:
    """Result of a campaign.

    Attributes
    ----------
    root
        The dataset's folder; for a dataset at a URL, its local copy, in which episodes have no telemetry.
    location
        Path or URL of the dataset.
    campaign
        Id of the campaign; its file is `campaigns/<id>.json` in the dataset.
    version
        Newest version of the dataset; empty when there is none.
    plans
        Planned episodes in their order.
    episodes
        Results of all planned episodes that have ended, in any run of the campaign.
    unsupported
        Faults left out because the platform cannot inject them, with the reasons.
    interrupted
        Whether the campaign was stopped before its end; then a version is written only if it has recordings.
    wall_s
        Length of this run in seconds.
    voids
        Failed attempts in all runs of the campaign.
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
    voids: tuple[VoidAttempt, ...] = ()

    @property
    def failures(self) -> dict[str, str]:
        """Episodes that are void, with the reason."""
        return {result.episode: result.failure for result in self.episodes if result.failure}

    def raise_for_failures(self) -> None:
        """Raise an error that names the first failure, if there is one.

        Raises
        ------
        DataError
            All failures are data errors, for instance a full disk.
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
            f"{len(failed)} of {count_text(len(self.plans), 'episode')} failed after "
            f"{count_text(first.attempts, 'attempt')}; first: {first.failure}{logs}. "
            f"Run the same command again to retry them"
        )
