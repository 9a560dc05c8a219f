"""Requests for campaigns, and the shuffled list of planned episodes that follows from one."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from faultset.collector.apps import is_path, load_app, load_apps
from faultset.collector.faults.registry import ALL, NOOP, FaultSpec, faults, get_fault
from faultset.collector.plans.code import campaign_code
from faultset.collector.plans.plan import NoFaultKind, Plan, profile_phases
from faultset.collector.platforms.api.profiles import Phases
from faultset.collector.platforms.hosts import load_host_class
from faultset.collector.runtime.app_code import is_folder
from faultset.collector.sources.registry import check_together, load_source
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError
from faultset.core.json_text import canonical_json
from faultset.core.suggestions import unknown_name

NO_FAULT_KINDS: tuple[NoFaultKind, ...] = ("plain", "disturbed", "sham")
FEWEST_NO_FAULT = 6


_Draft = tuple[AppSpec, str | None, NoFaultKind | None, str | None]


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


def chosen_faults(names: Sequence[str], app: AppSpec) -> list[FaultSpec]:
    """Return the faults that `names` mean for an application; `all` means all that apply to it.

    Raises
    ------
    UsageError
        A name is unknown, or a fault that was named has no target in the application.
    """
    if ALL in names:
        return [spec for spec in faults().values() if not unavailable_reason(spec, app)]
    chosen = [get_fault(name) for name in dict.fromkeys(names) if name != NOOP]
    for spec in chosen:
        if reason := unavailable_reason(spec, app):
            usable = ", ".join(name for name, other in faults().items() if not unavailable_reason(other, app))
            raise UsageError(f"fault {spec.name} {reason}; {app.name} can have {usable}")
    return chosen


def unavailable_reason(spec: FaultSpec, app: AppSpec) -> str:
    """Return why a fault cannot be applied to an application; empty when it can."""
    if app.deployed is not None and "runtime" in spec.needs:
        return f"works on programs of ours only, and somebody else has deployed {app.name}"
    return "" if spec.targets(app) else f"has no possible target in {app.name}"


def _pick_targets(
    specs: Sequence[FaultSpec], app: AppSpec, targets: Sequence[str], repeat: int, rng: np.random.Generator
) -> list[tuple[FaultSpec, str]]:
    for name in targets:
        if name not in app.services:
            raise unknown_name("target", name, app.services)
    used: Counter[str] = Counter()
    pairs = []
    scarce_first = sorted(specs, key=lambda spec: (len(spec.targets(app)), spec.name))
    for _ in range(repeat):
        for spec in scarce_first:
            possible = [name for name in spec.targets(app) if not targets or name in targets]
            if not possible:
                raise UsageError(
                    f"fault {spec.name} cannot be applied to {' or '.join(targets)}; "
                    f"its targets in {app.name} are {', '.join(spec.targets(app))}"
                )
            least = min(used[name] for name in possible)
            target = str(rng.choice([name for name in possible if used[name] == least]))
            used[target] += 1
            pairs.append((spec, target))
    return pairs


def plan_campaign(request: CampaignRequest, *, run: int = 1) -> tuple[Plan, ...]:
    """Return the episodes of a campaign in the order in which they run.

    The same request of the same code gives the same plans. Targets are balanced over services, no-fault episodes are
    mixed in, ids tell nothing. A further `run` of the same request has other ids.

    Raises
    ------
    UsageError
        Unknown names, impossible lengths, or nothing to do.
    """
    host_class = load_host_class(request.platform)
    check_numbers(request)
    check_phases(request.phases, request.step_s)
    check_together([load_source(name) for name in request.sources])
    rng = np.random.default_rng(np.random.SeedSequence([request.seed, 1]))
    drafts: list[_Draft] = []
    files: dict[str, str] = {}
    for name in request.apps:
        app = load_app(name)
        if is_path(name):
            files[app.name] = str(Path(name).absolute())
        if app.code is not None and is_folder(app.code) and not host_class.runs_code_of_folders:
            raise UsageError(
                f"app {app.name} has code in {app.code}, which services on platform {request.platform} cannot find; "
                "build an image with the application as an installed package, or use --platform local"
            )
        if app.deployed is not None and not host_class.runs_deployed_apps:
            raise UsageError(
                f"app {app.name} is deployed on a cluster, but the platform is {request.platform}; "
                "add --platform kubernetes"
            )
        if request.mix is not None and request.mix not in app.mixes:
            raise unknown_name("workload mix", request.mix, app.mixes)
        pairs = _pick_targets(chosen_faults(request.faults, app), app, request.targets, request.repeat, rng)
        drafts += [(app, spec.name, None, target) for spec, target in pairs]
        count = request.normal
        if count is None:
            count = max(FEWEST_NO_FAULT, math.ceil(len(pairs) / 2))
        elif count == 0 and NOOP in request.faults:
            count = request.repeat
        for number in range(count):
            drafts.append((app, None, NO_FAULT_KINDS[number % len(NO_FAULT_KINDS)], None))
    if not drafts:
        raise UsageError("nothing to collect: name a fault with --faults, or no-fault episodes with --normal")
    plans, campaign = [], campaign_id(request)
    for index, position in enumerate(rng.permutation(len(drafts))):
        app, fault, kind, target = drafts[position]
        seed = int(np.random.SeedSequence([request.seed, 2, index]).generate_state(1)[0])
        plans.append(
            Plan(
                episode=_opaque_id(campaign, index, run),
                app=app.name,
                app_file=files.get(app.name),
                platform=request.platform,
                fault=fault,
                no_fault_kind=kind,
                target=target,
                seed=seed,
                phases=request.phases,
                profile=request.profile,
                rate_rps=request.rate_rps,
                mix=request.mix or app.default_mix,
                step_s=request.step_s,
                trace_sampling=request.trace_sampling,
                sources=request.sources,
            )
        )
    return tuple(plans)


def campaign_id(request: CampaignRequest) -> str:
    """Return an id that the same request of the same code always gets, so that running it again resumes it."""
    # the text must never change, or campaigns that an earlier release began could not be resumed
    given = [field.name for field in fields(request) if field.name != "sources" or request.sources]
    values = ", ".join(f"{name}={getattr(request, name)!r}" for name in given)
    code = canonical_json(requested_code(request))
    return hashlib.sha256(f"Request({values}) {code}".encode()).hexdigest()[:12]


def requested_code(request: CampaignRequest) -> dict[str, str]:
    """Return which code a campaign runs; see `campaign_code`."""
    specs = {spec.name: spec for name in request.apps for spec in chosen_faults(request.faults, load_app(name))}
    return campaign_code(list(specs.values()), request.apps, request.platform, request.sources)


def _opaque_id(campaign: str, index: int, run: int) -> str:
    return hashlib.sha256(f"{campaign}/{index}/{run}".encode()).hexdigest()[:12]
