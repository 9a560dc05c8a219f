"""Requests for campaigns and the checks of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from faultset.collector.apps import load_apps
from faultset.collector.faults.registry import ALL
from faultset.collector.load.workloads.patterns import CONSTANT, REPLAY, parse_pattern, read_rates
from faultset.collector.load.workloads.traffic import Traffic, parse_regions
from faultset.collector.plans.options import (
    NO_FAULT_KINDS,
    CampaignOptions,
    NoFaultKind,
    check_ranges,
    complete_options,
)
from faultset.collector.plans.plan import OWN_INJECTOR, profile_phases
from faultset.collector.platforms.hosts import Phases, check_settings, load_host_class
from faultset.collector.platforms.impairments import Schedule
from faultset.collector.runtime.stores.drivers import ORIGINAL_DRIVERS
from faultset.collector.spec.store_choices import StoreChoice, parse_store_choice
from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name

DEFAULT_RATE_RPS = 20.0
LOADS = {"standard": "bursty", "long": "bursty"}
"""Load of a profile that has another than a constant one."""
DECOYS = {"quick": 3, "standard": 4, "long": 10}
"""Mean number of harmless changes in the episodes of each profile."""


@dataclass(frozen=True, kw_only=True)
class CampaignRequest:
    """A complete request for a campaign; `make_request` fills in defaults.

    Attributes
    ----------
    faults, apps, targets, platform, seed, repeat, normal, mix, step_s, trace_sampling, sources, regions
        Options of `CampaignOptions` without duplicate names; `all` is replaced by all applications.
    concurrent, schedule, spread, no_fault, injector, stores
        Options of `CampaignOptions`; None for the platform's own injector and for Redis.
    rate_rps, load, rollouts
        Options of `CampaignOptions`; by default, those of the profile.
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
    load = LOADS.get(profile, CONSTANT) if load is None else load
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
        "rate_rps": _rate_of(load, values["rate_rps"]),
        "load": load,
        "no_fault": _no_fault_kinds(values["no_fault"]),
        "injector": None if values["injector"] == OWN_INJECTOR else values["injector"],
        "stores": stores,
        "rollouts": DECOYS[profile] if values["rollouts"] is None else values["rollouts"],
    }
    return CampaignRequest(**(values | resolved))


def parse_stores(name: str | None, platform: str) -> StoreChoice | None:
    """Parse `--stores` for a plan.

    Raises
    ------
    UsageError
        The choice is unknown, or the platform cannot run such stores.
    """
    choice = parse_store_choice(name, ORIGINAL_DRIVERS)
    if choice is not None and not load_host_class(platform).original_store_kinds:
        raise UsageError(
            f"--stores {name} needs original servers, but platform {platform} runs Redis only. "
            "Leave --stores out, or use --platform local"
        )
    return choice


def parse_traffic(request: CampaignRequest) -> Traffic:
    """Return the client traffic of a campaign; raise UsageError if it cannot be parsed."""
    horizon_s = request.phases.warmup_s + request.phases.view_s
    return Traffic(
        pattern=replace(parse_pattern(request.load), horizon_s=horizon_s), regions=parse_regions(request.regions)
    )


def _rate_of(load: str, rate_rps: float | None) -> float:
    if load.partition(":")[0] != REPLAY or not load.partition(":")[2]:
        return DEFAULT_RATE_RPS if rate_rps is None else float(rate_rps)
    mean_rps = round(read_rates(Path(load.partition(":")[2])).mean_rps, 9)
    if rate_rps is not None and rate_rps != mean_rps:
        raise UsageError(
            f"a replayed load has the mean rate of its file, {mean_rps:g}, but --rate is {rate_rps:g}. Leave --rate out"
        )
    return mean_rps


def _no_fault_kinds(names: Sequence[str]) -> tuple[NoFaultKind, ...]:
    kinds: dict[str, NoFaultKind] = {kind: kind for kind in NO_FAULT_KINDS}
    for name in names:
        if name not in kinds:
            raise unknown_name("kind of episode without a fault", name, kinds)
    if not names:
        raise UsageError(f"--no-fault must name a kind of episode, but is empty. Choose from {', '.join(kinds)}")
    return tuple(kinds[name] for name in dict.fromkeys(names))


def check_numbers(request: CampaignRequest) -> None:
    """Raise UsageError if a number is outside its range."""
    check_ranges(vars(request) | vars(request.phases))


def check_phases(phases: Phases, step_s: float) -> None:
    """Raise UsageError if a phase is too short."""
    for name, length, least in (
        ("--healthy", phases.baseline_s, 20 * step_s),
        ("--faulty", phases.fault_s, 20 * step_s),
        ("--warmup", phases.warmup_s, 2.0),
        ("--cooldown", phases.cooldown_s, 1.0),
    ):
        if not length >= least:
            raise UsageError(f"{name} must be at least {least:g} s at a step of {step_s:g} s, but is {length:g} s")
    if phases.fault_s < 0.25 * phases.baseline_s:
        raise UsageError(
            f"--faulty must be at least a quarter of --healthy ({phases.baseline_s / 4:g} s), because the onset "
            f"is drawn up to 20 % of that length later, but is {phases.fault_s:g} s"
        )
