"""Requests for campaigns, and the numbers that one may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faultset.collector.apps import load_apps
from faultset.collector.faults.registry import ALL
from faultset.collector.plans.plan import profile_phases
from faultset.collector.platforms.api.profiles import Phases
from faultset.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class CampaignRequest:
    """A complete request for a campaign; `make_request` makes one with defaults.

    Attributes
    ----------
    targets
        Services that faults may be applied to; all that are possible when empty.
    repeat
        Episodes for each fault.
    normal
        No-fault episodes; None means half as many as with a fault, at least 6.
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
    rate_rps: float = 20.0,
    mix: str | None = None,
    step_s: float = 1.0,
    trace_sampling: float = 1.0,
    sources: Sequence[str] = (),
) -> CampaignRequest:
    """Return a request for a campaign; see `CampaignRequest` for what is not described here.

    Parameters
    ----------
    faults
        Names of faults; `all` for all that apply, `noop` for none.
    apps
        Names of applications or paths of app files; `all` for those that
        the collector deploys, plug-ins among them.
    profile
        `quick` or `standard`: the lengths of the phases.
    warmup_s, baseline_s, fault_s, cooldown_s
        Lengths of single phases in seconds instead of the profile's.

    Raises
    ------
    UsageError
        The platform is unknown, or has no such profile.
    """
    base = profile_phases(profile, platform)
    given = {"warmup_s": warmup_s, "baseline_s": baseline_s, "fault_s": fault_s, "cooldown_s": cooldown_s}
    phases = Phases(**{**vars(base), **{name: float(length) for name, length in given.items() if length is not None}})
    if ALL in apps:
        apps = tuple(name for name, app in load_apps().items() if app.deployed is None)
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
        rate_rps=float(rate_rps),
        mix=mix,
        step_s=float(step_s),
        trace_sampling=float(trace_sampling),
        sources=tuple(dict.fromkeys(sources)),
    )


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
