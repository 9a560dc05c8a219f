"""Requests for campaigns, and the numbers that one may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from faultset.collector.apps import load_apps
from faultset.collector.faults.registry import ALL
from faultset.collector.load.workloads.patterns import CONSTANT, REPLAY, parse_pattern
from faultset.collector.load.workloads.recorded_rates import read_rates
from faultset.collector.load.workloads.regions import parse_regions
from faultset.collector.load.workloads.traffic import Traffic
from faultset.collector.plans.plan import NO_FAULT_KINDS, OWN_INJECTOR, NoFaultKind, profile_phases
from faultset.collector.platforms.hosts import Phases, check_settings, load_host_class
from faultset.collector.platforms.impairments import Schedule
from faultset.collector.runtime.stores.drivers import ORIGINAL_DRIVERS
from faultset.collector.spec.store_choices import StoreChoice, parse_store_choice
from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name

DEFAULT_RATE_RPS = 20.0
MOST_CONCURRENT = 2
LOADS = {"standard": "bursty", "long": "bursty"}
"""Load of a profile that has another than a constant one."""
ROLLOUTS = {"standard": 1, "long": 6}
"""Rollouts in each episode of a profile that has any."""
MOST_ROLLOUTS = 20


@dataclass(frozen=True, kw_only=True)
class CampaignRequest:
    """A complete request for a campaign; `make_request` makes one with defaults.

    Attributes
    ----------
    faults
        Names of faults, in the order in which they were asked for.
    apps
        Names of applications, or paths of app files.
    targets
        Services that faults may be applied to; all that are possible when empty.
    platform
        Name of the platform.
    seed
        What plans and load follow from.
    repeat
        Episodes for each fault.
    normal
        No-fault episodes of each application; None means `default_no_fault_count`.
    phases
        Lengths of the phases of every episode.
    profile
        Name of the profile that `phases` come from; `custom` for other lengths.
    rate_rps
        Client requests per second.
    mix
        Workload mix; None means the application's default.
    step_s
        Interval of metrics in seconds.
    trace_sampling
        Share of client requests whose spans are kept.
    sources
        Sources of telemetry that are added to those of the platform.
    load
        How the rate of requests moves, as `faultset.collector.load.workloads.patterns` writes it.
    regions
        From where requests come, as `faultset.collector.load.workloads.regions` writes it.
    concurrent
        Faults that are injected together in each episode with a fault.
    schedule
        How faults act over time; None for what each does by itself.
    no_fault
        Kinds of the episodes without a fault: plain, disturbed (a harmless change) or sham (what looks like an
        injection); they take turns.
    spread
        Whether each fault is injected into one of the applications only.
    injector
        What disturbs pods, where that is not the platform's own.
    stores
        Which servers the applications' stores are, where that is not Redis.
    rollouts
        Healthy builds that are rolled out in each episode, to services without a fault.
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


def make_request(
    *,
    faults: Sequence[str],
    apps: Sequence[str],
    targets: Sequence[str] = (),
    platform: str = "local",
    seed: int = 0,
    repeat: int = 1,
    normal: int | None = None,
    profile: str = "standard",
    warmup_s: float | None = None,
    baseline_s: float | None = None,
    fault_s: float | None = None,
    cooldown_s: float | None = None,
    rate_rps: float | None = None,
    mix: str | None = None,
    step_s: float = 1.0,
    trace_sampling: float = 1.0,
    sources: Sequence[str] = (),
    load: str | None = None,
    regions: str = "",
    concurrent: int = 1,
    schedule: Schedule | None = None,
    spread: bool = False,
    no_fault: Sequence[str] = NO_FAULT_KINDS,
    injector: str | None = None,
    stores: str | None = None,
    rollouts: int | None = None,
) -> CampaignRequest:
    """Return a request for a campaign; see `CampaignRequest` for what is not described here.

    Parameters
    ----------
    faults
        Names of faults; `all` for all that apply, `noop` for none.
    apps
        Names of applications or paths of app files; `all` for those that
        the collector can deploy on the platform, plug-ins among them.
    profile
        `quick` or `standard`: the lengths of the phases.
    rate_rps
        20 when left out; a replayed load has the rate of its file.
    load
        What the profile has when left out: `bursty`, of `quick` `constant`.
    warmup_s, baseline_s, fault_s, cooldown_s
        Lengths of single phases in seconds instead of the profile's.
    injector
        `agent` is a cluster's own.
    stores
        `redis`, `original` for the own servers of all stores, or the kinds of those that have them, with commas.
    rollouts
        What the profile has when left out: 1 of `standard`, 6 of `long`, none of `quick`.

    Raises
    ------
    UsageError
        The platform is unknown, or has no such profile, or no choice of injectors or stores.
    """
    choice = parse_stores(stores, platform)
    if injector is not None:
        check_settings(platform, ["injector"])
    base = profile_phases(profile, platform)
    given = {"warmup_s": warmup_s, "baseline_s": baseline_s, "fault_s": fault_s, "cooldown_s": cooldown_s}
    phases = Phases(**{**vars(base), **{name: float(length) for name, length in given.items() if length is not None}})
    load = LOADS.get(profile, CONSTANT) if load is None else load
    if ALL in apps:
        deploys_operators = load_host_class(platform).deploys_operators
        apps = tuple(
            name
            for name, app in load_apps().items()
            if app.deployed is None and (app.operator is None or deploys_operators)
        )
    return CampaignRequest(
        faults=tuple(dict.fromkeys(faults)),
        apps=tuple(dict.fromkeys(apps)),
        targets=tuple(dict.fromkeys(targets)),
        platform=platform,
        seed=seed,
        repeat=repeat,
        normal=normal,
        phases=phases,
        profile=profile if phases == base else "custom",
        rate_rps=_rate_of(load, rate_rps),
        mix=mix,
        step_s=float(step_s),
        trace_sampling=float(trace_sampling),
        sources=tuple(dict.fromkeys(sources)),
        load=load,
        regions=regions,
        concurrent=concurrent,
        schedule=schedule,
        spread=spread,
        no_fault=_no_fault_kinds(no_fault),
        injector=None if injector == OWN_INJECTOR else injector,
        stores=choice,
        rollouts=ROLLOUTS.get(profile, 0) if rollouts is None else rollouts,
    )


def parse_stores(name: str | None, platform: str) -> StoreChoice | None:
    """Return a choice of stores as plans hold it.

    Raises
    ------
    UsageError
        There is no such choice, or the platform cannot run such stores.
    """
    choice = parse_store_choice(name, ORIGINAL_DRIVERS)
    if choice is not None and not load_host_class(platform).original_store_kinds:
        raise UsageError(
            f"--stores {name} is wanted, but platform {platform} runs Redis in the place of other stores only; "
            "leave --stores out, or use --platform local"
        )
    return choice


def traffic_of(request: CampaignRequest) -> Traffic:
    """Return what clients do in the episodes of a campaign; raise UsageError for what cannot be read."""
    horizon_s = request.phases.warmup_s + request.phases.view_s
    return Traffic(
        pattern=replace(parse_pattern(request.load), horizon_s=horizon_s), regions=parse_regions(request.regions)
    )


def _rate_of(load: str, rate_rps: float | None) -> float:
    if load.partition(":")[0] != REPLAY or not load.partition(":")[2]:
        return DEFAULT_RATE_RPS if rate_rps is None else float(rate_rps)
    mean_rps = round(read_rates(Path(load.partition(":")[2])).mean_rps, 9)
    if rate_rps is not None and rate_rps != mean_rps:
        raise UsageError(f"a replayed load has the rate of its file, {mean_rps:g} on average; leave --rate out")
    return mean_rps


def _no_fault_kinds(names: Sequence[str]) -> tuple[NoFaultKind, ...]:
    known: dict[str, NoFaultKind] = {kind: kind for kind in NO_FAULT_KINDS}
    for name in names:
        if name not in known:
            raise unknown_name("kind of episode without a fault", name, known)
    if not names:
        raise UsageError(f"name a kind of episode without a fault; there are {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names))


def check_numbers(request: CampaignRequest) -> None:
    """Refuse numbers that no episode can be made with; raise UsageError with the range that is possible."""
    lengths = vars(request.phases).items()
    for option, found, least, most in (
        ("--rate", request.rate_rps, 0.01, 10_000.0),
        ("--step", request.step_s, 0.1, 60.0),
        ("--trace-sampling", request.trace_sampling, 0.0, 1.0),
        ("--seed", request.seed, 0, 2**63 - 1),
        ("--repeat", request.repeat, 1, 100_000),
        ("--normal", request.normal or 0, 0, 100_000),
        ("--concurrent", request.concurrent, 1, MOST_CONCURRENT),
        ("--rollouts", request.rollouts, 0, MOST_ROLLOUTS),
        *((f"--{name.removesuffix('_s')}", length, 0.0, 86_400.0) for name, length in lengths),
    ):
        if not least <= found <= most:
            raise UsageError(f"{option} must be from {least:g} to {most:g}, but is {_short(found)}")


def _short(number: float) -> str:
    return f"a number of {len(str(number))} digits" if isinstance(number, int) and number > 2**64 else f"{number:g}"


def check_phases(phases: Phases, step_s: float) -> None:
    """Refuse lengths that leave an episode unusable.

    Raises
    ------
    UsageError
        A phase is too short for its purpose; says which, and what would do.
    """
    for name, length, least in (
        ("--baseline", phases.baseline_s, 20 * step_s),
        ("--fault", phases.fault_s, 20 * step_s),
        ("--warmup", phases.warmup_s, 2.0),
        ("--cooldown", phases.cooldown_s, 1.0),
    ):
        if not length >= least:
            raise UsageError(f"{name} must be at least {least:g} s at a step of {step_s:g} s, but is {length:g} s")
    if phases.fault_s < 0.25 * phases.baseline_s:
        raise UsageError(
            f"--fault must be at least a quarter of --baseline ({phases.baseline_s / 4:g} s), because the onset "
            f"is drawn up to 20 % of the baseline after its end, but is {phases.fault_s:g} s"
        )
