"""Collecting a dataset: from a request to episodes and a version of the dataset."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from faultset.collector.apps import load_app
from faultset.collector.campaigns.dask_executor import check_for_workers, open_workers
from faultset.collector.campaigns.destinations import Destination, open_destination
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.executors import CampaignHost, CampaignProgress, Executor, run_episodes
from faultset.collector.campaigns.local_executor import ThisMachine
from faultset.collector.campaigns.output_folder import (
    await_removal_or_notify,
    make_output_folder,
    remove_abandoned,
)
from faultset.collector.campaigns.records import (
    CampaignResult,
    campaign_file,
    code_changes,
    record_failures,
    recorded_outcome,
    write_campaign,
)
from faultset.collector.faults.registry import get_fault
from faultset.collector.faults.unsupported import unsupported_faults
from faultset.collector.plans.campaign_plans import campaign_id, describe_campaign, plan_campaign, requested_code
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import CampaignRequest, make_request
from faultset.collector.platforms.hosts import open_host
from faultset.core.errors import PlatformError, UsageError
from faultset.core.files import translate_resource_errors
from faultset.core.locks import locked
from faultset.datasets.format.versions import create_version, list_versions, read_manifest

_log = logging.getLogger(__name__)


def collect(
    request: CampaignRequest | None = None,
    *,
    out: str | Path,
    jobs: int | None = None,
    scheduler: str | None = None,
    fresh: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[CampaignProgress], None] = lambda state: None,
    notify: Callable[[str], None] = _log.info,
    should_stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> CampaignResult:
    """Run the episodes of a campaign that its dataset does not have yet, and write a version of the dataset.

    Parameters
    ----------
    request
        What to collect; when left out, it is made of the other keyword arguments by `make_request`.
    out
        Folder of the dataset, made when it does not exist; or any URL that fsspec can write to, for instance
        `s3://bucket/data`.
    jobs
        Episodes at a time at most; as many as the host can carry when left out. Fewer run while it is short of CPU.
    scheduler
        Address of a dask scheduler, on whose workers the episodes run, instead of this machine; `jobs` is then the most
        that all of them run. They must see a folder `out` under the same path, and reach a URL.
    fresh
        Run all plans anew, as a new campaign, instead of resuming.
    settings
        Settings of the platform, for instance `context` of a cluster.
    progress
        Called several times a second with the state of the campaign.
    notify
        Called with sentences for people; they are logged when it is left out.
    should_stop
        Called several times a second; once it returns True, the episodes under way are undone and ended.

    Raises
    ------
    UsageError
        The request cannot be meant.
    DataError
        `out` holds something that is no dataset.
    PlatformError
        Episodes cannot run here, a requested fault cannot be injected, or a URL cannot be written to. Failures of
        single episodes raise nothing: they are in the result.

    Examples
    --------
    >>> result = collect(faults=["pod-kill"], apps=["hotel"], profile="quick", out="data")  # doctest: +SKIP
    >>> result.version, result.failures  # doctest: +SKIP
    ('1.0.0', {})
    """
    request = request or make_request(**options)
    plans, destination = plan_campaign(request), open_destination(out)
    if scheduler is not None:
        check_for_workers(request.platform, destination)
    if "injector" in (settings or {}):
        raise UsageError("the injector is part of what is asked for: name it as injector=, not among the settings")
    settings = {**(settings or {}), **plans[0].settings}
    here = open_host(request.platform, settings)
    destination.check()
    root = destination.folder
    with ExitStack() as stack:
        host: CampaignHost = ThisMachine(here, root, plans, jobs)
        if scheduler is not None:
            make_output_folder(root)
            host = stack.enter_context(open_workers(scheduler, destination, request, here, jobs=jobs))
        for sentence in host.check():
            notify(sentence)
        make_output_folder(root)
        stack.enter_context(translate_resource_errors(root))
        lock = stack.enter_context(locked(root, "collect", notify=notify))
        destination.update()
        campaign = _Campaign(request, plans, destination, host, notify, jobs=jobs, fresh=fresh)
        campaign.prepare(settings)
        with host.open_executor(campaign=campaign.id, jobs=campaign.jobs, lock=lock) as executor:
            result = campaign.run(executor, progress, should_stop)
        return campaign.publish(result)


class _Campaign:
    """A campaign into a destination whose folder is locked and up to date."""

    def __init__(
        self,
        request: CampaignRequest,
        plans: tuple[Plan, ...],
        destination: Destination,
        host: CampaignHost,
        notify: Callable[[str], None],
        *,
        jobs: int | None,
        fresh: bool,
    ) -> None:
        self.request, self.destination, self.host, self.notify = request, destination, host, notify
        self.root = destination.folder
        self.id, self.plans = campaign_id(request), plans
        if fresh:
            self._begin_anew()
        self.jobs = self._allowed_jobs(jobs)
        self.unsupported: dict[str, str] = {}
        self.began = time.monotonic()

    def prepare(self, settings: Mapping[str, Any]) -> None:
        """Remove what killed runs left, leave out faults that cannot be injected, and write the campaign's file."""
        here, platform = self.host.here, self.request.platform
        for sentence in remove_abandoned(self.root, lambda name: here if name == platform else None).left:
            self.notify(sentence)
        self.unsupported = self._find_unsupported()
        for fault in _only_with(self.unsupported, self.plans):
            self.notify(f"left out: {fault}, which was planned together with faults that cannot be injected here")
        self.plans = tuple(
            plan for plan in self.plans if self.unsupported.keys().isdisjoint(one.fault for one in plan.faults)
        )
        code = requested_code(self.request)
        if changed := ", ".join(code_changes(self.root, self.request, code)):
            self.notify(f"the code of {changed} has changed since the last such campaign: all its episodes are new")
        write_campaign(
            self.root,
            self.id,
            self.request,
            self.plans,
            unsupported=self.unsupported,
            settings=settings,
            code=code,
        )
        self.destination.save(campaign_file(self.root, self.id))

    def run(
        self, executor: Executor, progress: Callable[[CampaignProgress], None], should_stop: Callable[[], bool]
    ) -> CampaignResult:
        """Run the episodes that the dataset does not have."""
        present = [
            EpisodeResult(plan=plan, outcome=recorded_outcome(self.root, plan.episode), attempts=0, wall_s=0.0)
            for plan in self.plans
            if (self.root / "episodes" / plan.episode).exists()
        ]
        unfinished = [plan for plan in self.plans if plan.episode not in {result.episode for result in present}]
        cost = (
            describe_campaign(unfinished, self.jobs)
            if unfinished
            else f"all {len(self.plans)} episodes are there already"
        )
        self.notify(f"{cost}, into {self.destination.location}")

        def take(result: EpisodeResult) -> tuple[WaitingEpisode, ...]:
            if not result.failure:
                self.destination.add_finished([result.episode])
            return ()

        results = run_episodes(
            unfinished,
            executor,
            progress=lambda state: progress(replace(state, finished=[*present, *state.finished])),
            should_stop=should_stop,
            take=take,
        )
        await_removal_or_notify(self.host.here, [plan.episode for plan in self.plans], self.notify)
        return CampaignResult(
            root=self.root,
            location=self.destination.location,
            campaign=self.id,
            version=(list_versions(self.root) or [""])[-1],
            plans=self.plans,
            episodes=(*present, *results),
            unsupported=self.unsupported,
            interrupted=should_stop(),
            wall_s=time.monotonic() - self.began,
        )

    def publish(self, result: CampaignResult) -> CampaignResult:
        """Note the failures and make a version of the dataset, unless the campaign was interrupted."""
        if result.interrupted:
            return result
        self.destination.update()
        record_failures(self.root, self.id, result.failures)
        self.destination.save(campaign_file(self.root, self.id))
        if _has_version(self.root, [one.episode for one in result.episodes if not one.failure]):
            return result
        provenance = {
            "faultset": version("faultset"),
            "campaign": self.id,
            "request": asdict(self.request),
            "code": requested_code(self.request),
            "jobs": self.jobs,
            "wall_s": round(result.wall_s, 1),
            "failed_episodes": len(result.failures),
            **self.host.machines(),
        }
        name = create_version(self.root, provenance=provenance, summaries=self.destination.summaries())
        self.destination.publish_version(name)
        return replace(result, version=name)

    def _begin_anew(self) -> None:
        """Take an id and plans that no earlier run of the same request has used."""
        number, name = 1, self.id
        while campaign_file(self.root, name).exists():
            number += 1
            name = f"{self.id}-{number}"
        if number > 1:
            self.id, self.plans = name, plan_campaign(self.request, run=number)

    def _allowed_jobs(self, jobs: int | None) -> int:
        """Return the maximum number of concurrent episodes: one where they share an application that runs already."""
        if any(load_app(name).deployed for name in {plan.app_file or plan.app for plan in self.plans}):
            if jobs and jobs > 1:
                self.notify("one episode at a time: they share an application that runs already")
            return 1
        return self.host.episode_capacity()

    def _find_unsupported(self) -> dict[str, str]:
        """Return planned faults that the host cannot inject; raise PlatformError when one was requested by name."""
        planned = {one.fault: get_fault(one.fault) for plan in self.plans for one in plan.faults}
        changing = self.request.schedule not in (None, "constant")
        specs = [replace(spec, needs=spec.needs | {"course"}) if changing else spec for spec in planned.values()]
        unsupported = unsupported_faults(self.host, specs)
        for fault, reason in unsupported.items():
            if fault in self.request.faults:
                raise PlatformError(f"fault {fault} cannot be injected here: {reason}")
            self.notify(f"left out: {fault}, which cannot be injected here: {reason}")
        return unsupported


def _has_version(root: Path, episodes: Collection[str]) -> bool:
    """Say whether some version has all of these episodes; none need no version."""
    versions = reversed(list_versions(root))
    return not episodes or any(read_manifest(root, name).episodes.keys() >= {*episodes} for name in versions)


def _only_with(unsupported: Mapping[str, str], plans: Sequence[Plan]) -> list[str]:
    """Return the faults that have no episode without one that cannot be injected."""
    names = [{one.fault for one in plan.faults} for plan in plans]
    possible = {name for together in names if unsupported.keys().isdisjoint(together) for name in together}
    return sorted(set().union(*names) - possible - unsupported.keys())
