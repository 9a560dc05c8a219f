"""The result of a campaign, its file in the dataset, and the provenance of a version."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel

import faultset.collector
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import VoidAttempt
from faultset.collector.campaigns.output_folder import CAMPAIGNS
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.options import campaign_options
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import CampaignRequest
from faultset.collector.recordings.chunks import recorded_s
from faultset.core.code_identity import path_identity
from faultset.core.documents import check_type, read_document
from faultset.core.errors import DataError, PlatformError, suggest
from faultset.core.files import replace_text
from faultset.core.printable import count_text
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.labels import read_label

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
    return root / CAMPAIGNS / f"{campaign}.json"


def campaign_ids(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / CAMPAIGNS).glob("*.json"))


def find_outcome(root: Path, plan: Plan) -> EpisodeOutcome | None:
    """Return the outcome of an episode, or of a recording in its full length; None if the dataset does not have it."""
    if plan.recording is None:
        return find_episode(root, plan.episode)
    is_complete = recorded_s(root, plan.episode) >= plan.recording.duration_s - 1.0
    return EpisodeOutcome(episode=plan.episode) if is_complete else None


def find_episode(root: Path, episode: str) -> EpisodeOutcome | None:
    folder = root / EPISODES / episode
    return EpisodeOutcome(episode=episode, verdict=read_label(folder).verdict) if folder.exists() else None


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

    `request` is None if the plans come from an earlier campaign, which `as_in` names. `unsupported` are faults that the
    platform cannot inject, with the reason; `code` is the result of `campaign_code`.
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
    """Return the content of a campaign's file; raise DataError if it is missing or damaged."""
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
    """Result of a campaign."""

    root: Path
    """The dataset's folder; for a dataset at a URL, its local copy, in which episodes have no telemetry."""
    location: str
    """Path or URL of the dataset."""
    campaign: str
    """Id of the campaign; its file is `campaigns/<id>.json` in the dataset."""
    version: str
    """Newest version of the dataset; empty when there is none."""
    plans: tuple[Plan, ...]
    """Planned episodes in their order."""
    episodes: tuple[EpisodeResult, ...]
    """Results of all planned episodes that have ended, in any run of the campaign."""
    unsupported: Mapping[str, str]
    """Faults left out because the platform cannot inject them, with the reasons."""
    interrupted: bool
    """Whether the campaign was stopped before its end; then a version is written only if it has recordings."""
    wall_s: float
    """Length of this run in seconds."""
    voids: tuple[VoidAttempt, ...] = ()
    """Failed attempts in all runs of the campaign."""

    @property
    def failures(self) -> dict[str, str]:
        """Episodes that are void, with the reason."""
        return {result.episode: result.failure for result in self.episodes if result.failure}

    def raise_for_failures(self) -> None:
        """Raise an error that names the first failure, if there is one: DataError if all are data errors such as a full
        disk.
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


PACKAGES = ("apps", "campaigns", "episodes", "faults", "load", "plans", "platforms", "runtime", "sources", "verdicts")
"""Packages of the collector whose code determines what an episode contains."""


def describe_machine() -> dict[str, Any]:
    """Describe a machine on which episodes ran."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def collector_code() -> dict[str, Any]:
    """Return a digest of each package in PACKAGES, and the commit if the collector runs from a git checkout."""
    root = Path(str(faultset.collector.__file__)).parent
    digests = {name: path_identity(root / name).digest for name in PACKAGES}
    return {"packages": digests} | _describe_checkout(root)


def _describe_checkout(folder: Path) -> dict[str, Any]:
    """Return the commit of a git checkout and the number of changed files; empty for other folders."""
    commit = _run_git(folder, "rev-parse", "HEAD")
    tracked = _run_git(folder, "ls-files", "--error-unmatch", "__init__.py")
    if not commit or not tracked:
        return {}
    changed = _run_git(folder, "status", "--porcelain", "--untracked-files=no", ":/") or ""
    return {"commit": commit, "changed_files": len(changed.splitlines())}


def _run_git(folder: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    result = subprocess.run([git, "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def command_line() -> str | None:
    """Return the command line of `faultset`; None if another program runs this code."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    return shlex.join([program, *sys.argv[1:]]) if program == "faultset" else None


def count_void_attempts(attempts: Iterable[VoidAttempt]) -> dict[str, dict[str, int]]:
    """Count void attempts by cause, separately with and without a fault."""
    counts: dict[str, Counter[str]] = {"with a fault": Counter(), "without a fault": Counter()}
    for attempt in attempts:
        counts["with a fault" if attempt.has_fault else "without a fault"][attempt.cause] += 1
    return {group: dict(sorted(causes.items())) for group, causes in counts.items()}
