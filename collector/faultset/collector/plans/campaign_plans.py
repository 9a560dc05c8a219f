"""Plan the episodes of a campaign: balanced targets, shuffled episodes without a fault, opaque ids, cost and code."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from faultset.collector.apps import GROUP as APPS
from faultset.collector.apps import is_path, load_app
from faultset.collector.faults.registry import GROUP as FAULTS
from faultset.collector.faults.registry import NOOP, FaultSpec
from faultset.collector.load.driver import GROUP as LOAD_DRIVERS
from faultset.collector.load.schedule import parse_mixes
from faultset.collector.load.traffic import Traffic
from faultset.collector.plans.fault_choice import choose_faults_by_app, divide_faults, draw_fault_pairs, draw_faults
from faultset.collector.plans.options import NoFaultKind
from faultset.collector.plans.plan import Plan, PlannedFault
from faultset.collector.plans.planned_app import with_stores
from faultset.collector.plans.requests import CampaignRequest, check_numbers, check_phases, parse_traffic
from faultset.collector.plans.timeline import LATE_S, RecordingPlan, check_recording, draw_incidents
from faultset.collector.platforms.hosts import GROUP as PLATFORMS
from faultset.collector.platforms.hosts import load_host_class
from faultset.collector.runtime.app_code import is_folder
from faultset.collector.sources.recorder import GROUP as SOURCES
from faultset.collector.sources.recorder import check_together, load_source
from faultset.collector.spec.app import AppSpec
from faultset.core.code_identity import CodeIdentity, code_identity, path_identity, plugin_identity
from faultset.core.errors import UsageError
from faultset.core.files import canonical_json
from faultset.core.plugins import plugins
from faultset.core.printable import count_text, size_text
from faultset.core.times import duration_text
from faultset.datasets.format.context import Sampling

MAX_PAIRED = 6
"""Up to this number of episodes with a fault, each is paired with an episode without a fault."""


class _Draft(NamedTuple):
    app: AppSpec
    no_fault_kind: NoFaultKind | None = None
    faults: tuple[PlannedFault, ...] = ()
    recording: RecordingPlan | None = None


def plan_campaign(request: CampaignRequest, *, run: int = 1) -> tuple[Plan, ...]:
    """Return the episodes of a campaign in the order in which they run.

    The same request and code give the same plans. Targets are balanced over services, episodes without a fault are
    shuffled in, and ids reveal nothing. Another `run` of the same request has other ids.

    Raises
    ------
    UsageError
        A name is unknown, a length is impossible, or the campaign is empty.
    """
    check_numbers(request)
    check_phases(request.phases, request.step_s)
    traffic = parse_traffic(request)
    check_together([load_source(name) for name in request.sources])
    rng = np.random.default_rng(np.random.SeedSequence([request.seed, 1]))
    apps = {name: with_stores(load_app(name), request.stores, request.platform) for name in request.apps}
    faults_by_app = choose_faults_by_app(request, list(apps.values()), rng)
    for app in apps.values():
        _check_platform(app, request.platform)
        parse_mixes(request.mix or app.default_mix, app)
    make_drafts = _draft_episodes if request.recording_s is None else _draft_recordings
    drafts = make_drafts(request, list(apps.values()), faults_by_app, rng)
    files = {app.name: str(Path(name).absolute()) for name, app in apps.items() if is_path(name)}
    campaign = campaign_id(request)
    return tuple(
        _build_plan(request, draft, index, opaque_id(campaign, index, run), traffic, files.get(draft.app.name))
        for index, draft in enumerate(drafts)
    )


_FaultsByApp = Mapping[str, Sequence[Sequence[FaultSpec]]]


def _draft_episodes(
    request: CampaignRequest, apps: Sequence[AppSpec], faults_by_app: _FaultsByApp, rng: np.random.Generator
) -> list[_Draft]:
    """Draw the episodes with a fault, and shuffle episodes without one in."""
    draw = draw_fault_pairs if request.concurrent > 1 else draw_faults
    drafts: list[_Draft] = []
    for app in apps:
        injected = draw(faults_by_app[app.name], app, request.targets, rng)
        drafts += [_Draft(app, faults=faults) for faults in injected]
        count = request.normal
        if count is None:
            count = default_no_fault_count(len(injected))
        elif count == 0 and NOOP in request.faults:
            count = request.repeat
        drafts += [_Draft(app, request.no_fault[number % len(request.no_fault)]) for number in range(count)]
    if not drafts:
        raise UsageError("a campaign must have episodes, but none are requested. Give --faults, or a higher --normal")
    return [drafts[position] for position in rng.permutation(len(drafts))]


def _draft_recordings(
    request: CampaignRequest, apps: Sequence[AppSpec], faults_by_app: _FaultsByApp, rng: np.random.Generator
) -> list[_Draft]:
    """Draw the incidents of all recordings: every fault about equally often overall, in random order."""
    assert request.recording_s is not None
    check_recording(request.recording_s, request.chunk_s, request.incidents, request.overlap, request.phases)
    choices = [next(iter(faults_by_app[app.name]), []) for _ in range(request.repeat) for app in apps]
    if request.incidents and not all(choices):
        raise UsageError("a recording with --incidents needs faults, but --faults has none. List some, or use all")
    faults_by_recording = divide_faults(choices, request.incidents, rng)
    sampling = Sampling(
        traces=request.trace_sampling, slow_traces_s=request.slow_traces_s, log_levels=request.log_levels
    )
    drafts_by_app: list[list[_Draft]] = []
    for position, app in enumerate(apps):
        specs = faults_by_recording[position :: len(apps)]
        remaining = iter([(fault.fault, fault.target) for (fault,) in draw_faults(specs, app, request.targets, rng)])
        drafts_by_app.append([])
        for faults in specs:
            drawn = [next(remaining) for _ in faults]
            pairs = [drawn[number] for number in rng.permutation(len(drawn))]
            recording = RecordingPlan(
                duration_s=request.recording_s,
                chunk_s=min(request.chunk_s, request.recording_s),
                incidents=draw_incidents(pairs, request.recording_s, request.overlap, request.phases, rng),
                sampling=sampling,
            )
            drafts_by_app[-1].append(_Draft(app, "plain", recording=recording))
    return [draft for repetition in zip(*drafts_by_app, strict=True) for draft in repetition]


def _build_plan(
    request: CampaignRequest, draft: _Draft, index: int, episode: str, traffic: Traffic, app_file: str | None
) -> Plan:
    app, faults = draft.app, draft.faults
    return Plan(
        episode=episode,
        app=app.name,
        app_file=app_file,
        platform=request.platform,
        fault=faults[0].fault if faults else None,
        no_fault_kind=draft.no_fault_kind,
        target=faults[0].target if faults else None,
        seed=int(np.random.SeedSequence([request.seed, 2, index]).generate_state(1)[0]),
        phases=request.phases,
        profile=request.profile,
        rate_rps=request.rate_rps,
        mix=request.mix or app.default_mix,
        step_s=request.step_s,
        trace_sampling=request.trace_sampling,
        sources=request.sources,
        traffic=traffic,
        further=faults[1:],
        schedule=request.schedule if faults or draft.recording else None,
        injector=request.injector,
        stores=request.stores,
        rollouts=request.rollouts,
        recording=draft.recording,
    )


def _check_platform(app: AppSpec, platform: str) -> None:
    """Raise UsageError unless a platform can run an application."""
    host_class = load_host_class(platform)
    if app.code is not None and is_folder(app.code) and not host_class.runs_code_of_folders:
        raise UsageError(
            f"services on platform {platform} need installed code, but app {app.name} has its code in {app.code}. "
            "Build an image with the application as an installed package, or use --platform local"
        )
    if app.deployed is not None and not host_class.runs_deployed_apps:
        raise UsageError(
            f"app {app.name} is deployed on a cluster, but the platform is {platform}. Add --platform kubernetes"
        )
    if app.operator is not None and app.deployed is None and not host_class.deploys_operators:
        raise UsageError(
            f"app {app.name} has an operator, which platform {platform} cannot deploy. Use --platform local, or deploy "
            "it yourself and use an app file with the field `deployed`"
        )


def default_no_fault_count(faulty: int) -> int:
    """Return the default number of episodes without a fault, given the number of episodes with a fault.

    Up to six, the two numbers are equal; above that, the result is half of `faulty`, but at least six. It is at least
    two, so that one episode can be used for training.

    >>> [default_no_fault_count(faulty) for faulty in (0, 1, 4, 8, 12, 45)]
    [2, 2, 4, 6, 6, 23]
    """
    return max(2, min(faulty, max(MAX_PAIRED, math.ceil(faulty / 2))))


def campaign_id(request: CampaignRequest) -> str:
    """Return an id that depends only on request and code, so that running a request again resumes it."""
    rates = parse_traffic(request).pattern.rates  # the content of a file that the request only names
    text = canonical_json({"request": asdict(request), "rates": rates, "code": identify_requested_code(request)})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def identify_requested_code(request: CampaignRequest) -> dict[str, str]:
    """Return the code that a campaign runs; see `campaign_code`."""
    faults_by_app = choose_faults_by_app(
        request,
        [with_stores(load_app(name), request.stores, request.platform) for name in request.apps],
        np.random.default_rng(0),
    )
    specs = {spec.name: spec for repetitions in faults_by_app.values() for specs in repetitions for spec in specs}
    return campaign_code(list(specs.values()), request.apps, request.platform, request.sources)


def opaque_id(campaign: str, index: int, run: int) -> str:
    """Return an episode id that reveals nothing about the episode."""
    return hashlib.sha256(f"{campaign}/{index}/{run}".encode()).hexdigest()[:12]


OVERHEAD_S = 10.0
"""Time of an episode outside its phases: deployment, checks, undo and recovery.

docs/results/costs.md: 83 s for phases of 73 s, by `benchmarks/collection/scale_costs.py`.
"""
USED_SLOT_SHARE = 0.78
"""Mean number of running episodes as a share of the maximum.

docs/results/costs.md: 257 episodes of 113 s, seven at once, took 89 minutes on two cores; with all slots busy, they
would take 69 minutes.
"""
BYTES_PER_REQUEST = 508
"""Disk space of telemetry per client request; see `BYTES_PER_SECOND`."""
BYTES_PER_SECOND = 1_790
"""Disk space of telemetry per second of the view, independent of the load.

docs/results/costs.md: 343 KiB for 60 s at 8 requests a second and 4.1 MiB for 360 s at 20. Both together
give 1.1 MB for 90 s at 20, where 0.98 MB was measured.
"""


def episode_time_s(plan: Plan) -> float:
    """Return the duration of one run of an episode."""
    view_s = plan.phases.view_s if plan.recording is None else plan.recording.duration_s + LATE_S
    return plan.phases.warmup_s + view_s + plan.phases.cooldown_s + OVERHEAD_S


def campaign_time_s(plans: Sequence[Plan], jobs: int) -> float:
    """Return the duration of a campaign with `jobs` concurrent episodes and without repetitions.

    >>> campaign_time_s([], 4)
    0.0
    """
    times_s = [episode_time_s(plan) for plan in plans]
    share = USED_SLOT_SHARE if jobs > 1 else 1.0
    return max(max(times_s, default=0.0), sum(times_s) / (jobs * share))


def campaign_bytes(plans: Sequence[Plan]) -> float:
    """Return the disk space of a campaign's episodes, including spans and log lines of all requests."""
    return sum(_recorded_s(plan) * (BYTES_PER_SECOND + BYTES_PER_REQUEST * plan.rate_rps) for plan in plans)


def _recorded_s(plan: Plan) -> float:
    return plan.phases.view_s if plan.recording is None else plan.recording.duration_s


def shorten_recording(plan: Plan, recorded_s: float) -> Plan:
    """Return the plan of a recording without the time that was recorded earlier; other plans are returned unchanged."""
    if plan.recording is None or not recorded_s:
        return plan
    incidents = tuple(incident for incident in plan.recording.incidents if incident.at_s >= recorded_s)
    duration_s = max(0.0, plan.recording.duration_s - recorded_s)
    return replace(plan, recording=replace(plan.recording, duration_s=duration_s, incidents=incidents))


def describe_campaign(plans: Sequence[Plan], jobs: int) -> str:
    """Describe the number of episodes and the cost of a campaign in one line."""
    faulty_count = sum(plan.fault is not None for plan in plans)
    jobs = min(jobs, len(plans))
    concurrency = "one at a time" if jobs == 1 else f"at most {jobs} at a time"
    cost = f"about {duration_text(campaign_time_s(plans, jobs))} and {size_text(campaign_bytes(plans))}"
    recordings = [plan.recording for plan in plans if plan.recording is not None]
    if recordings:
        incident_count = sum(len(recording.incidents) for recording in recordings)
        hours = sum(recording.duration_s for recording in recordings) / 3600
        return (
            f"{count_text(len(recordings), 'recording')} of {hours:.2g} hours in all, with "
            f"{count_text(incident_count, 'incident')}, {concurrency}: {cost}"
        )
    return (
        f"{count_text(len(plans), 'episode')} ({faulty_count} with a fault, {len(plans) - faulty_count} without), "
        f"{concurrency}: {cost}"
    )


_FAULTS_PACKAGE = "faultset.collector.faults"


def campaign_code(
    faults: list[FaultSpec], apps: tuple[str, ...], platform: str, sources: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the identity of each piece of code, by "fault NAME", "app NAME" and so on.

    `apps` are names, or paths of folders or files. Built-in platforms, sources and load drivers are left out, because
    the version of faultset identifies them.
    """
    entries = plugins(FAULTS)
    identities = {
        f"fault {spec.name}": code_identity(spec.inject, entries.get(spec.name), within=_FAULTS_PACKAGE)
        for spec in faults
    }
    load_drivers, installed_sources = plugins(LOAD_DRIVERS), plugins(SOURCES)
    used_plugins = [plugins(PLATFORMS).get(platform), *(installed_sources.get(name) for name in sources)]
    for name in apps:
        app = load_app(name)
        identities[f"app {app.name}"] = identify_app(name)
        used_plugins.append(load_drivers.get(app.load.driver))
    kinds = {PLATFORMS: "platform", SOURCES: "source", LOAD_DRIVERS: "load driver"}
    for plugin in used_plugins:
        if plugin is not None and not plugin.built_in:
            identities[f"{kinds[plugin.group]} {plugin.name}"] = plugin_identity(plugin)
    return {name: str(identity) for name, identity in sorted(identities.items())}


def identify_app(name: str) -> CodeIdentity:
    """Identify an application by the content of its folder or file, and by its distribution if installed."""
    if is_path(name):
        return path_identity(Path(name))
    plugin = plugins(APPS)[name]
    loaded = plugin.load()
    if isinstance(loaded, ModuleType) and not plugin.built_in:
        return plugin_identity(plugin)
    path = Path(str(loaded.__file__)).parent if isinstance(loaded, ModuleType) else Path(str(loaded))
    return CodeIdentity(distribution=plugin.distribution, digest=path_identity(path).digest)
