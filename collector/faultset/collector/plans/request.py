"""From what a user asks for to the shuffled list of episodes that answers it."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from faultset.collector.apps import is_path, load_app
from faultset.collector.faults.registry import FaultSpec, faults, get_fault
from faultset.collector.plans.plan import NoFaultKind, Plan
from faultset.collector.platforms.api.profiles import Phases
from faultset.collector.platforms.hosts import load_host_class
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name

NO_FAULT_KINDS: tuple[NoFaultKind, ...] = ("plain", "disturbed", "sham")
FEWEST_NO_FAULT = 6
NOOP = "noop"


_Draft = tuple[AppSpec, str | None, NoFaultKind | None, str | None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `collect` was asked for; `None` in `normal` means one no-fault episode for two with a fault."""

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


def check_phases(phases: Phases, step_s: float) -> None:
    """Refuse lengths from which no usable episode can come.

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
    if "all" in names:
        return [spec for spec in faults().values() if not unfit(spec, app)]
    chosen = [get_fault(name) for name in dict.fromkeys(names) if name != NOOP]
    for spec in chosen:
        if reason := unfit(spec, app):
            usable = ", ".join(name for name, other in faults().items() if not unfit(other, app))
            raise UsageError(f"fault {spec.name} {reason}; {app.name} can have {usable}")
    return chosen


def unfit(spec: FaultSpec, app: AppSpec) -> str:
    """Say why a fault cannot be applied to an application; empty when it can."""
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


def plan_campaign(request: Request, *, run: int = 1) -> list[Plan]:
    """Return the episodes of a campaign in the order in which they run.

    The same request gives the same plans. Targets are balanced over services, no-fault episodes are mixed in,
    ids tell nothing. A further `run` of the same request has other ids.

    Raises
    ------
    UsageError
        Unknown names, impossible lengths, or nothing to do.
    """
    host_class = load_host_class(request.platform)
    check_phases(request.phases, request.step_s)
    if not request.rate_rps > 0:
        raise UsageError(f"--rate must be more than 0 requests per second, but is {request.rate_rps:g}")
    rng = np.random.default_rng(np.random.SeedSequence([request.seed, 1]))
    drafts: list[_Draft] = []
    files: dict[str, str] = {}
    for name in request.apps:
        app = load_app(name)
        if is_path(name):
            files[app.name] = str(Path(name).absolute())
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
    plans = []
    for index, position in enumerate(rng.permutation(len(drafts))):
        app, fault, kind, target = drafts[position]
        seed = int(np.random.SeedSequence([request.seed, 2, index]).generate_state(1)[0])
        plans.append(
            Plan(
                episode=_opaque_id(request, index, run),
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
            )
        )
    return plans


def campaign_id(request: Request) -> str:
    """Return an id that the same request always gets, so that running it again resumes it."""
    return hashlib.sha256(repr(request).encode()).hexdigest()[:12]


def _opaque_id(request: Request, index: int, run: int) -> str:
    return hashlib.sha256(f"{campaign_id(request)}/{index}/{run}".encode()).hexdigest()[:12]
