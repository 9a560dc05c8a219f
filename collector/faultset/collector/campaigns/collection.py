"""Collect a dataset: plan the episodes of a request, run them, and write a version of the dataset."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from faultset.collector.apps import load_app
from faultset.collector.campaigns.dask_executor import check_for_workers, open_workers
from faultset.collector.campaigns.destinations import Destination, open_destination
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.executors import CampaignHost, CampaignProgress, Executor, ThisMachine, run_episodes
from faultset.collector.campaigns.output_folder import await_removal_or_notify, make_output_folder, remove_abandoned
from faultset.collector.campaigns.records import (
    CampaignResult,
    campaign_file,
    code_changes,
    collector_code,
    command_line,
    count_void_attempts,
    find_outcome,
    record_failures,
    write_campaign,
)
from faultset.collector.faults.registry import get_fault, unsupported_faults
from faultset.collector.plans.campaign_plans import (
    campaign_id,
    describe_campaign,
    opaque_id,
    plan_campaign,
    shorten_recording,
)
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.recorded_plans import identify_code, plans_id, read_recorded_plans, select_repeatable
from faultset.collector.plans.requests import CampaignRequest, make_request
from faultset.collector.platforms.hosts import open_host
from faultset.collector.recordings.chunks import recorded_s
from faultset.core.errors import PlatformError, UsageError
from faultset.core.files import translate_resource_errors
from faultset.core.locks import lock_folder
from faultset.core.printable import count_text
from faultset.core.times import elapsed_text
from faultset.datasets.format.recordings import CHUNK_FILE, RECORDINGS, chunk_folder, chunk_numbers
from faultset.datasets.format.versions import create_version, list_versions, read_version

_log = logging.getLogger(__name__)


def collect(
    request: CampaignRequest | None = None,
    *,
    out: str | Path,
    as_in: str | Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    fresh: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[CampaignProgress], None] = lambda state: None,
    notify: Callable[[str], None] = _log.info,
    should_stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> CampaignResult:
    """Run the missing episodes of a campaign and write a version of its dataset.

    Parameters
    ----------
    request
        What to collect; by default, `make_request` builds it from the other keyword arguments.
    out
        Folder of the dataset, which need not exist, or a URL that fsspec can write to, such as `s3://bucket/data`.
    as_in
        Dataset, card, version file or campaign file whose plans are run again, instead of a request.
    jobs
        Maximum number of concurrent episodes; by default, the host's capacity. Fewer run while the CPU is busy.
    scheduler
        Address of a dask scheduler, on whose workers the episodes run; `jobs` then limits all workers together. The
        workers must have the folder `out` under the same path, or access to the URL.
    fresh
        Run all plans again, as a new campaign, instead of resuming.
    settings
        Settings of the platform, such as `context` of a cluster.
    progress
        Called several times a second with the state of the campaign.
    notify
        Called with messages for the user; logs them by default.
    should_stop
        Called several times a second; once it returns True, running episodes undo their changes and end.

    Raises
    ------
    UsageError
        The request is invalid.
    DataError
        `out` contains files that are not part of a dataset.
    PlatformError
        Episodes cannot run here, a requested fault cannot be injected, or a URL cannot be written to. Failures of
        individual episodes are in the result.

    Examples
    --------
    >>> result = collect(faults=["pod-kill"], apps=["hotel"], profile="quick", out="data")  # doctest: +SKIP
    >>> result.version, result.failures  # doctest: +SKIP
    ('1.0.0', {})
    """
    if "injector" in (settings or {}):
        raise UsageError("injector must be a keyword argument, but is among the settings. Pass injector= instead")
    source = _recorded_source(as_in, notify) if as_in else _requested_source(request or make_request(**options))
    destination = open_destination(out)
    if any(plan.recording for plan in source.plans):
        _check_destination_of_recordings(destination, scheduler)
    if scheduler is not None:
        check_for_workers(source.plans[0].platform, destination)
    settings = {**(settings or {}), **source.plans[0].settings}
    local_host = open_host(source.plans[0].platform, settings)
    destination.check()
    root = destination.folder
    with ExitStack() as stack:
        host: CampaignHost = ThisMachine(local_host, root, source.plans, jobs)
        if scheduler is not None:
            make_output_folder(root)
            host = stack.enter_context(open_workers(scheduler, destination, source.plans, local_host, jobs=jobs))
        for sentence in host.check():
            notify(sentence)
        make_output_folder(root)
        stack.enter_context(translate_resource_errors(root))
        lock = stack.enter_context(lock_folder(root, "collect", notify=notify))
        destination.update()
        campaign = _Campaign(source, destination, host, notify, jobs=jobs, fresh=fresh)
        campaign.prepare(settings)
        with host.open_executor(campaign=campaign.id, jobs=campaign.jobs, lock=lock) as executor:
            result = campaign.run(executor, progress, should_stop)
        return campaign.publish(result)


def _check_destination_of_recordings(destination: Destination, scheduler: str | None) -> None:
    """Raise UsageError unless this machine can write recordings to the destination, chunk by chunk."""
    if scheduler is not None:
        raise UsageError("--scheduler is for episodes, not for --recording. Leave it out")
    if not destination.is_shared:
        raise UsageError(
            f"--out must be a folder with --recording, but is {destination.location}. Record into a folder, then copy "
            'that folder there with "faultset dataset publish"'
        )


@dataclass(frozen=True, kw_only=True)
class _PlanSource:
    """Plans of a campaign and where they come from: a request, or an earlier campaign."""

    id: str
    plans: tuple[Plan, ...]
    request: CampaignRequest | None = None
    as_in: str | None = None

    @property
    def requested_faults(self) -> tuple[str, ...]:
        return self.request.faults if self.request else ()

    def plan_again(self, run: int) -> tuple[Plan, ...]:
        """Return the plans with ids that no earlier run has used."""
        if self.request:
            return plan_campaign(self.request, run=run)
        return tuple(replace(plan, episode=opaque_id(self.id, index, run)) for index, plan in enumerate(self.plans))


def _requested_source(request: CampaignRequest) -> _PlanSource:
    plans = plan_campaign(request)  # checks the request
    return _PlanSource(id=campaign_id(request), plans=plans, request=request)


def _recorded_source(as_in: str | Path, notify: Callable[[str], None]) -> _PlanSource:
    plans, objections = select_repeatable(read_recorded_plans(Path(as_in)))
    for sentence in objections:
        notify(sentence)
    return _PlanSource(id=plans_id(plans), plans=plans, as_in=str(as_in))


class _Campaign:
    """A campaign that writes to a destination whose folder is locked and up to date."""

    def __init__(
        self,
        source: _PlanSource,
        destination: Destination,
        host: CampaignHost,
        notify: Callable[[str], None],
        *,
        jobs: int | None,
        fresh: bool,
    ) -> None:
        self.source, self.destination, self.host, self.notify = source, destination, host, notify
        self.root = destination.folder
        self.id, self.plans = source.id, source.plans
        if fresh:
            self._choose_new_id()
        self.jobs = self._allowed_jobs(jobs)
        self.unsupported: dict[str, str] = {}
        self.start_s = time.monotonic()

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Clean up after killed runs, drop plans that cannot run here, and write the campaign's file."""
        local_host, platform = self.host.local_host, self.plans[0].platform
        for sentence in remove_abandoned(self.root, lambda name: local_host if name == platform else None).remaining:
            self.notify(sentence)
        self.unsupported = self._find_unsupported()
        for fault in _find_dependent_faults(self.unsupported, self.plans):
            self.notify(f"left out: {fault}, because every plan with it also has a fault that cannot be injected here")
        self.plans = tuple(
            _without_incidents(plan, self.unsupported)
            for plan in self.plans
            if self.unsupported.keys().isdisjoint(fault.fault for fault in plan.faults)
        )
        code = identify_code(self.source.plans)
        if changed := ", ".join(code_changes(self.root, self.source.request, code)):
            self.notify(
                f"the code of {changed} has changed since the last campaign with this request: all episodes run again"
            )
        write_campaign(
            self.root,
            self.id,
            self.source.request,
            self.plans,
            as_in=self.source.as_in,
            unsupported=self.unsupported,
            settings=settings,
            code=code,
        )
        self.destination.save(campaign_file(self.root, self.id))

    def run(
        self, executor: Executor, progress: Callable[[CampaignProgress], None], should_stop: Callable[[], bool]
    ) -> CampaignResult:
        present = [
            EpisodeResult(plan=plan, outcome=outcome, attempts=0, wall_s=0.0)
            for plan in self.plans
            if (outcome := find_outcome(self.root, plan)) is not None
        ]
        unfinished = [plan for plan in self.plans if plan.episode not in {result.episode for result in present}]
        earlier_s = {plan.episode: recorded_s(self.root, plan.episode) for plan in unfinished if plan.recording}
        cost = (
            describe_campaign([shorten_recording(p, earlier_s.get(p.episode, 0.0)) for p in unfinished], self.jobs)
            if unfinished
            else f"{count_text(len(self.plans), _name_unit(self.plans))} collected earlier"
        )
        self.notify(f"{cost}, into {self.destination.location}")
        for plan in unfinished:
            if plan.recording is not None and (done_s := earlier_s[plan.episode]):
                lengths = f"{elapsed_text(done_s)} of {elapsed_text(plan.recording.duration_s)}"
                self.notify(f"recording {plan.episode} continues after {lengths}")

        def handle_result(result: EpisodeResult) -> tuple[WaitingEpisode, ...]:
            if not result.failure and result.plan.recording is None:
                self.destination.add_finished([result.episode])
            return ()

        results = run_episodes(
            unfinished,
            executor,
            progress=lambda state: progress(
                replace(state, finished=[*present, *state.finished], recorded_earlier_s=earlier_s)
            ),
            should_stop=should_stop,
            handle_result=handle_result,
        )
        await_removal_or_notify(self.host.local_host, [plan.episode for plan in self.plans], self.notify)
        return CampaignResult(
            root=self.root,
            location=self.destination.location,
            campaign=self.id,
            version=(list_versions(self.root) or [""])[-1],
            plans=self.plans,
            episodes=(*present, *results),
            unsupported=self.unsupported,
            interrupted=should_stop(),
            wall_s=time.monotonic() - self.start_s,
            voids=tuple(void for result in results for void in result.voids),
        )

    def publish(self, result: CampaignResult) -> CampaignResult:
        """Record failures and void attempts and write a version; after an interruption only if there are recordings."""
        self.destination.update()
        voids = record_failures(self.root, self.id, {} if result.interrupted else result.failures, result.voids)
        self.destination.save(campaign_file(self.root, self.id))
        result = replace(result, voids=voids)
        episodes = [e.episode for e in result.episodes if not e.failure and e.plan.recording is None]
        recordings = [e.episode for e in result.episodes if e.plan.recording is not None]
        is_published = _has_version(self.root, episodes) and _has_chunks(self.root, recordings)
        if is_published or (result.interrupted and not recordings):
            return result
        name = create_version(
            self.root, provenance=self._build_provenance(result), summaries=self.destination.summaries()
        )
        self.destination.publish_version(name)
        return replace(result, version=name)

    def _build_provenance(self, result: CampaignResult) -> dict[str, Any]:
        """Return what the dataset card records about how the version was collected."""
        request = self.source.request
        return {
            "faultset": version("faultset"),
            "campaign": self.id,
            "request": None if request is None else asdict(request),
            "as_in": self.source.as_in,
            "command": command_line(),
            "plans": [json.loads(plan.to_json()) for plan in self.plans],
            "code": identify_code(self.source.plans),
            "collector": collector_code(),
            "jobs": self.jobs,
            "wall_s": round(result.wall_s, 1),
            "failed_episodes": len(result.failures),
            "void_attempts": count_void_attempts(result.voids),
            **self.host.machines(),
        }

    def _choose_new_id(self) -> None:
        """Choose an id and plans that no earlier run of the same campaign has used."""
        number, name = 1, self.id
        while campaign_file(self.root, name).exists():
            number += 1
            name = f"{self.id}-{number}"
        if number > 1:
            self.id, self.plans = name, self.source.plan_again(number)

    def _allowed_jobs(self, jobs: int | None) -> int:
        """Return the maximum number of concurrent episodes: 1 if they share an application that is already running."""
        if any(load_app(name).deployed for name in {plan.app_file or plan.app for plan in self.plans}):
            if jobs and jobs > 1:
                self.notify("episodes run one at a time, because they share an application that is already running")
            return 1
        return self.host.episode_capacity()

    def _find_unsupported(self) -> dict[str, str]:
        """Return planned faults that the host cannot inject; raise PlatformError when the user named one."""
        planned = {fault.fault: get_fault(fault.fault) for plan in self.plans for fault in plan.all_faults}
        has_schedules = any(plan.schedule not in (None, "constant") for plan in self.plans)
        specs = [replace(spec, needs=spec.needs | {"course"}) if has_schedules else spec for spec in planned.values()]
        unsupported = unsupported_faults(self.host, specs)
        for fault, reason in unsupported.items():
            if fault in self.source.requested_faults:
                raise PlatformError(f"fault {fault} cannot be injected here: {reason}")
            self.notify(f"left out: {fault}, which cannot be injected here: {reason}")
        return unsupported


def _has_version(root: Path, episodes: Collection[str]) -> bool:
    """Return whether one version has all episodes; also true if there are none."""
    versions = reversed(list_versions(root))
    return not episodes or any(read_version(root, name).episodes.keys() >= {*episodes} for name in versions)


def _has_chunks(root: Path, recordings: Sequence[str]) -> bool:
    """Return whether the newest version has all complete chunks of recordings; also true if there are none."""
    present = {name: chunk_numbers(root / RECORDINGS / name) for name in recordings}
    if not any(present.values()) or not list_versions(root):
        return not any(present.values())
    version_files = read_version(root).recordings
    return all(
        f"{chunk_folder(number)}/{CHUNK_FILE}" in version_files.get(name, {})
        for name, numbers in present.items()
        for number in numbers
    )


def _without_incidents(plan: Plan, faults: Collection[str]) -> Plan:
    if plan.recording is None:
        return plan
    incidents = tuple(incident for incident in plan.recording.incidents if incident.fault not in faults)
    return replace(plan, recording=replace(plan.recording, incidents=incidents))


def _name_unit(plans: Sequence[Plan]) -> str:
    return "recording" if any(plan.recording for plan in plans) else "episode"


def _find_dependent_faults(unsupported: Mapping[str, str], plans: Sequence[Plan]) -> list[str]:
    names = [{fault.fault for fault in plan.faults} for plan in plans]
    possible = {name for episode in names if unsupported.keys().isdisjoint(episode) for name in episode}
    return sorted(set().union(*names) - possible - unsupported.keys())
