"""Campaign requests and their range checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from faultset.collector.apps import load_apps
from faultset.collector.faults.registry import ALL
from faultset.collector.load.patterns import CONSTANT, REPLAY, parse_pattern, read_rates
from faultset.collector.load.traffic import Traffic, parse_regions
from faultset.collector.plans.options import (
    NO_FAULT_KINDS,
    CampaignOptions,
    NoFaultKind,
    campaign_options,
    check_ranges,
    complete_options,
)
from faultset.collector.plans.plan import OWN_INJECTOR, profile_phases
from faultset.collector.platforms.hosts import Phases, check_settings, load_host_class
from faultset.collector.platforms.impairments import Schedule
from faultset.collector.runtime.stores import ORIGINAL_DRIVERS
from faultset.collector.spec.app import StoreChoice, parse_store_choice
from faultset.core.errors import UsageError, unknown_name

DEFAULT_RATE_RPS = 20.0
DAY_S = 86_400.0
LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
LOADS = {"standard": "bursty", "long": "bursty"}
"""Load of each profile whose load is not constant."""
RECORDING_LOAD = "daily:burst=1.8"
"""Load of a recording: a day with bursts, compressed if the recording is shorter than a day."""
DECOYS = {"quick": 3, "standard": 4, "long": 10}
"""Mean number of harmless changes in the episodes of each profile."""


@dataclass(frozen=True, kw_only=True)
class CampaignRequest:
    """A complete request for a campaign; `make_request` fills in defaults.

    Attributes
    ----------
    faults, apps, targets, platform, seed, repeat, normal, mix, step_s, trace_sampling, sources, regions
        Options of `CampaignOptions` without duplicate names; `all` is replaced by the built-in applications that
        the platform can deploy.
    concurrent, schedule, spread, no_fault, injector, stores
        Options of `CampaignOptions`; None for the platform's own injector and for Redis.
    rate_rps, load, rollouts
        Options of `CampaignOptions`; the profile sets the defaults.
    recording_s, incidents, overlap, chunk_s, slow_traces_s, log_levels
        Options of `CampaignOptions` for recordings; `recording_s` is None for episodes.
    phases
        Lengths of the phases of every episode.
    profile
        Name of the profile that `phases` come from; `custom` for other lengths.
    """

    faults: tuple[str, ...]
    apps: tuple[str, ...]
    targets: tuple[str, ...]
    platform: str
    seed: int
    repeat: int
    normal: int | None
    phases: Phases
    profile: str
    rate_rps: float
    mix: str | None
    step_s: float
    trace_sampling: float = 1.0
    sources: tuple[str, ...] = ()
    load: str = CONSTANT
    regions: str = ""
    concurrent: int = 1
    schedule: Schedule | None = None
    spread: bool = False
    no_fault: tuple[NoFaultKind, ...] = NO_FAULT_KINDS
    injector: str | None = None
    stores: StoreChoice | None = None
    rollouts: int = 0
    recording_s: float | None = None
    incidents: int = 0
    overlap: float = 0.0
    chunk_s: float = 600.0
    slow_traces_s: float | None = None
    log_levels: tuple[str, ...] = ()


def make_request(**options: Unpack[CampaignOptions]) -> CampaignRequest:
    """Return a request for a campaign, with defaults for missing options.

    Parameters
    ----------
    options
        Options of `CampaignOptions`; lengths are in seconds, with names such as `fault_s`.

    Raises
    ------
    UsageError
        An option or platform is unknown, or the platform does not support the profile, injector or stores.
    """
    values = complete_options(**options)
    platform, profile, load = values["platform"], values["profile"], values["load"]
    stores = parse_stores(values["stores"], platform)
    if values["injector"] is not None:
        check_settings(platform, ["injector"])
    base = profile_phases(profile, platform)
    lengths = {name: values.pop(name) for name in vars(base)}
    phases = replace(base, **{name: length for name, length in lengths.items() if length is not None})
    if load is None:
        load = LOADS.get(profile, CONSTANT) if values["recording_s"] is None else RECORDING_LOAD
    if ALL in values["apps"]:
        deploys_operators = load_host_class(platform).deploys_operators
        values["apps"] = tuple(
            name
            for name, app in load_apps().items()
            if app.deployed is None and (app.operator is None or deploys_operators)
        )
    resolved = {
        "phases": phases,
        "profile": profile if phases == base else "custom",
        "rate_rps": _choose_rate(load, values["rate_rps"]),
        "load": load,
        "no_fault": _parse_no_fault_kinds(values["no_fault"]),
        "injector": None if values["injector"] == OWN_INJECTOR else values["injector"],
        "stores": stores,
        "rollouts": DECOYS[profile] if values["rollouts"] is None else values["rollouts"],
    }
    return CampaignRequest(**(values | resolved))


def _check_recording_options(values: Mapping[str, Any]) -> None:
    """Raise UsageError if options of recordings and of episodes are mixed."""
    for name in ("incidents", "overlap", "slow_traces_s", "log_levels"):
        if values["recording_s"] is None and values[name]:
            flag = campaign_options()[name].flag
            raise UsageError(f"--{flag} is for recordings only. Add --recording with a length, or leave it out")
    if values["recording_s"] is None:
        return
    for name in ("sources", "spread", "normal"):
        if values[name]:
            raise UsageError(f"--{name} is for episodes, not for --recording. Leave it out")
    if values["concurrent"] > 1:
        raise UsageError("--concurrent is for episodes, not for --recording. Use --overlap for faults at the same time")
    for level in values["log_levels"]:
        if level not in LEVELS:
            raise unknown_name("log level", level, LEVELS)


def parse_stores(name: str | None, platform: str) -> StoreChoice | None:
    """Parse `--stores` for a plan; raise UsageError if the choice is unknown or the platform cannot run such stores."""
    choice = parse_store_choice(name, ORIGINAL_DRIVERS)
    if choice is not None and not load_host_class(platform).original_store_kinds:
        raise UsageError(
            f"--stores {name} needs original servers, but platform {platform} runs only Redis. "
            "Leave --stores out, or use --platform local"
        )
    return choice


def parse_traffic(request: CampaignRequest) -> Traffic:
    """Return the client traffic of a campaign; raise UsageError if it cannot be parsed."""
    horizon_s = request.phases.warmup_s + request.phases.view_s
    if request.recording_s is not None:
        horizon_s = min(request.recording_s, DAY_S)
    return Traffic(
        pattern=replace(parse_pattern(request.load), horizon_s=horizon_s), regions=parse_regions(request.regions)
    )


def _choose_rate(load: str, rate_rps: float | None) -> float:
    kind, _, file = load.partition(":")
    if kind != REPLAY or not file:
        return DEFAULT_RATE_RPS if rate_rps is None else float(rate_rps)
    mean_rps = round(read_rates(Path(file)).mean_rps, 9)
    if rate_rps is not None and rate_rps != mean_rps:
        raise UsageError(
            f"a replayed load has the mean rate of its file, {mean_rps:g}, but --rate is {rate_rps:g}. Leave --rate out"
        )
    return mean_rps


def _parse_no_fault_kinds(names: Sequence[str]) -> tuple[NoFaultKind, ...]:
    kinds: dict[str, NoFaultKind] = {kind: kind for kind in NO_FAULT_KINDS}
    for name in names:
        if name not in kinds:
            raise unknown_name("kind of episode without a fault", name, kinds)
    if not names:
        raise UsageError(f"--no-fault must name a kind of episode, but is empty. Choose from {', '.join(kinds)}")
    return tuple(kinds[name] for name in dict.fromkeys(names))


def check_numbers(request: CampaignRequest) -> None:
    """Raise UsageError if a number is outside its range, or options of recordings and of episodes are mixed."""
    check_ranges(vars(request) | vars(request.phases))
    _check_recording_options(vars(request))


def check_phases(phases: Phases, step_s: float) -> None:
    """Raise UsageError if a phase is too short."""
    for name, length, minimum in (
        ("--healthy", phases.baseline_s, 20 * step_s),
        ("--faulty", phases.fault_s, 20 * step_s),
        ("--warmup", phases.warmup_s, 2.0),
        ("--cooldown", phases.cooldown_s, 1.0),
    ):
        if not length >= minimum:
            raise UsageError(f"{name} must be at least {minimum:g} s at a step of {step_s:g} s, but is {length:g} s")
    if phases.fault_s < 0.25 * phases.baseline_s:
        raise UsageError(
            f"--faulty must be at least a quarter of --healthy ({phases.baseline_s / 4:g} s), but is "
            f"{phases.fault_s:g} s; a late onset shortens the faulty time by up to 20 % of --healthy"
        )
