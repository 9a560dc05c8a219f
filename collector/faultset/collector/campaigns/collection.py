"""Collecting a dataset: from a request to episodes and a version of the dataset."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from faultset.collector.apps import load_app
from faultset.collector.campaigns.destinations import Destination, open_destination
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.output_folder import (
    await_removal_or_notify,
    make_output_folder,
    remove_abandoned,
    remove_lost_episode,
)
from faultset.collector.campaigns.records import (
    campaign_file,
    code_changes,
    record_failures,
    recorded_outcome,
    write_campaign,
)
from faultset.collector.campaigns.results import CampaignResult, this_machine
from faultset.collector.campaigns.scheduler import CampaignProgress, run_episodes
from faultset.collector.campaigns.worker_hosts import WorkerHosts, check_for_workers, open_workers
from faultset.collector.faults.registry import get_fault
from faultset.collector.faults.unsupported import unsupported_faults
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign, requested_code
from faultset.collector.plans.chosen_stores import check_planned_stores
from faultset.collector.plans.cost import describe_campaign
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import CampaignRequest, make_request
from faultset.collector.platforms.hosts import PlatformHost, open_host
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
    campaign = campaign_id(request)
    if scheduler is not None:
        check_for_workers(request.platform, destination)
    if "injector" in (settings or {}):
        raise UsageError("the injector is part of what is asked for: name it as injector=, not among the settings")
    settings = {**(settings or {}), **plans[0].settings}
    here = open_host(request.platform, settings)
    destination.check()
    root = destination.folder
    if scheduler is not None:
        make_output_folder(root)
    with ExitStack() as stack:
        host = here
        if scheduler is not None:
            host = stack.enter_context(open_workers(scheduler, destination, request, here.settings, jobs=jobs))
        for sentence in (*host.check(), *(check_planned_stores(here, plans) if host is here else ())):
            notify(sentence)
        make_output_folder(root)
        stack.enter_context(translate_resource_errors(root))
        lock = stack.enter_context(locked(root, "collect", notify=notify))
        destination.update()
        if fresh:
            campaign, plans = _as_new(root, request, campaign, plans)
        return _collect(
            request,
            campaign,
            plans,
            destination,
            here,
            host,
            lock=lock,
            jobs=jobs,
            settings=settings,
            progress=progress,
            notify=notify,
            should_stop=should_stop,
        )


def _collect(
    request: CampaignRequest,
    campaign: str,
    plans: tuple[Plan, ...],
    destination: Destination,
    here: PlatformHost,
    host: PlatformHost | WorkerHosts,
    *,
    lock: int,
    jobs: int | None,
    settings: Mapping[str, Any],
    progress: Callable[[CampaignProgress], None],
    notify: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> CampaignResult:
    """Run a campaign into a destination whose folder is locked and up to date."""
    root = destination.folder
    left = remove_abandoned(root, lambda platform: here if platform == request.platform else None).left
    for sentence in left:
        notify(sentence)
    jobs = _jobs(plans, host, jobs, notify)
    unsupported = _unsupported_faults(plans, host, request, notify)
    for fault in _only_with(unsupported, plans):
        notify(f"left out: {fault}, which was planned together with faults that cannot be injected here")
    plans = tuple(plan for plan in plans if unsupported.keys().isdisjoint(one.fault for one in plan.faults))
    code = requested_code(request)
    if changed := ", ".join(code_changes(root, request, code)):
        notify(f"the code of {changed} has changed since the last such campaign: all its episodes are new")
    write_campaign(root, campaign, request, plans, unsupported=unsupported, settings=settings, code=code)
    destination.save(campaign_file(root, campaign))
    began = time.monotonic()
    present = [_present_episode(root, plan) for plan in plans if (root / "episodes" / plan.episode).exists()]
    known = {result.episode for result in present}
    unfinished = [plan for plan in plans if plan.episode not in known]
    cost = describe_campaign(unfinished, jobs) if unfinished else f"all {len(plans)} episodes are there already"
    notify(f"{cost}, into {destination.location}")
    run = (
        partial(host.run_episodes, campaign=campaign)
        if isinstance(host, WorkerHosts)
        else partial(
            run_episodes,
            root=root,
            jobs=jobs,
            settings=host.settings,
            remove_lost=lambda episode: remove_lost_episode(root, episode, host),
            lock=lock,
        )
    )
    added = 0

    def report(state: CampaignProgress) -> None:
        nonlocal added
        ended = state.finished[added:]
        added += len(ended)
        destination.add_finished(one.episode for one in ended if not one.failure)
        progress(replace(state, finished=[*present, *state.finished]))

    results = run(
        unfinished,
        progress=report,
        should_stop=should_stop,
    )
    await_removal_or_notify(here, [plan.episode for plan in plans], notify)
    result = CampaignResult(
        root=root,
        location=destination.location,
        campaign=campaign,
        version=(list_versions(root) or [""])[-1],
        plans=plans,
        episodes=(*present, *results),
        unsupported=unsupported,
        interrupted=should_stop(),
        wall_s=time.monotonic() - began,
    )
    if result.interrupted:
        return result
    destination.update()
    record_failures(root, campaign, result.failures)
    destination.save(campaign_file(root, campaign))
    if _has_version(root, [one.episode for one in result.episodes if not one.failure]):
        return result
    provenance = _provenance(result, request, jobs, host)
    made = create_version(root, provenance=provenance, summaries=destination.summaries())
    destination.publish_version(made)
    return replace(result, version=made)


def _as_new(
    root: Path, request: CampaignRequest, campaign: str, plans: tuple[Plan, ...]
) -> tuple[str, tuple[Plan, ...]]:
    """Return an id and plans that no earlier run of the same request has used."""
    number, name = 1, campaign
    while campaign_file(root, name).exists():
        number += 1
        name = f"{campaign}-{number}"
    return name, plan_campaign(request, run=number) if number > 1 else plans


def _present_episode(root: Path, plan: Plan) -> EpisodeResult:
    return EpisodeResult(plan=plan, outcome=recorded_outcome(root, plan.episode), attempts=0, wall_s=0.0)


def _has_version(root: Path, episodes: Collection[str]) -> bool:
    """Say whether some version has all of these episodes; none need no version."""
    versions = reversed(list_versions(root))
    return not episodes or any(read_manifest(root, name).episodes.keys() >= {*episodes} for name in versions)


def _jobs(
    plans: Sequence[Plan], host: PlatformHost | WorkerHosts, wanted: int | None, notify: Callable[[str], None]
) -> int:
    """Return how many episodes run at a time: one where they share an application that is not ours."""
    if any(load_app(name).deployed for name in {plan.app_file or plan.app for plan in plans}):
        if wanted and wanted > 1:
            notify("one episode at a time: they share an application that runs already")
        return 1
    return host.episode_capacity() if isinstance(host, WorkerHosts) else wanted or host.episode_capacity()


def _unsupported_faults(
    plans: Sequence[Plan], host: PlatformHost | WorkerHosts, request: CampaignRequest, notify: Callable[[str], None]
) -> dict[str, str]:
    """Return the planned faults that the host cannot inject; raise PlatformError when one was requested by name."""
    planned = {one.fault: get_fault(one.fault) for plan in plans for one in plan.faults}
    changing = request.schedule not in (None, "constant")
    specs = [replace(spec, needs=spec.needs | {"course"}) if changing else spec for spec in planned.values()]
    unsupported = unsupported_faults(host, specs)
    for fault, reason in unsupported.items():
        if fault in request.faults:
            raise PlatformError(f"fault {fault} cannot be injected here: {reason}")
        notify(f"left out: {fault}, which cannot be injected here: {reason}")
    return unsupported


def _only_with(unsupported: Mapping[str, str], plans: Sequence[Plan]) -> list[str]:
    """Return the faults that have no episode without one that cannot be injected."""
    names = [{one.fault for one in plan.faults} for plan in plans]
    possible = {name for together in names if unsupported.keys().isdisjoint(together) for name in together}
    return sorted(set().union(*names) - possible - unsupported.keys())


def _provenance(
    result: CampaignResult, request: CampaignRequest, jobs: int, host: PlatformHost | WorkerHosts
) -> dict[str, Any]:
    on = {"hosts": host.machines} if isinstance(host, WorkerHosts) else {"host": this_machine()}
    return {
        "faultset": version("faultset"),
        "campaign": result.campaign,
        "request": asdict(request),
        "code": requested_code(request),
        "jobs": jobs,
        "wall_s": round(result.wall_s, 1),
        "failed_episodes": len(result.failures),
        **on,
    }
