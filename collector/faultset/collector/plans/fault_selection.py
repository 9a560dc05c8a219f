"""Which faults can be applied to an application, and which a campaign chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

import numpy as np

from faultset.collector.faults.registry import ALL, NOOP, FaultSpec, faults, get_fault
from faultset.collector.plans.requests import CampaignRequest
from faultset.collector.platforms.impairments import Schedule
from faultset.collector.runtime.stores.drivers import STORE_DRIVERS
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name


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


def faults_by_app(
    request: CampaignRequest, apps: Sequence[AppSpec], rng: np.random.Generator
) -> dict[str, list[list[FaultSpec]]]:
    """Return the faults that each repetition of a campaign injects, by the application's name.

    Each application gets every fault that applies to it or, when they are spread, one application each, such that all
    get about equally many; further repetitions go to other applications while there are any.

    Raises
    ------
    UsageError
        A name is unknown, a fault that was named has no target, or cannot act over time as asked for.
    """
    if not request.spread:
        chosen = {app.name: with_schedule(chosen_faults(request.faults, app), request) for app in apps}
        return {name: [specs] * request.repeat for name, specs in chosen.items()}
    fitting = {
        spec: [app.name for app in apps if not unavailable_reason(spec, app)]
        for spec in with_schedule(_faults_for_any(request.faults, apps), request)
    }
    spread: dict[str, list[list[FaultSpec]]] = {app.name: [[] for _ in range(request.repeat)] for app in apps}
    had: Counter[tuple[FaultSpec, str]] = Counter()
    sizes: Counter[str] = Counter()
    for repetition in range(request.repeat):
        for spec in sorted(fitting, key=lambda one: (len(fitting[one]), one.name)):
            ranks = {name: (had[spec, name], sizes[name]) for name in fitting[spec]}
            name = str(rng.choice([name for name, rank in ranks.items() if rank == min(ranks.values())]))
            had[spec, name] += 1
            sizes[name] += 1
            spread[name][repetition].append(spec)
    return spread


def _faults_for_any(names: Sequence[str], apps: Sequence[AppSpec]) -> list[FaultSpec]:
    wanted = faults().values() if ALL in names else [get_fault(name) for name in names if name != NOOP]
    possible = [spec for spec in wanted if any(not unavailable_reason(spec, app) for app in apps)]
    for spec in wanted:
        if spec not in possible and ALL not in names:
            raise UsageError(
                f"fault {spec.name} has no possible target in {' or '.join(app.name for app in apps)}; "
                "name another application with --apps"
            )
    return possible


def with_schedule(specs: Sequence[FaultSpec], request: CampaignRequest) -> list[FaultSpec]:
    """Return the faults that can act over time as a request says.

    Raises
    ------
    UsageError
        One that was named cannot, or there is no such schedule.
    """
    schedule = request.schedule
    if schedule is None:
        return list(specs)
    if schedule not in get_args(Schedule):
        raise unknown_name("schedule", schedule, get_args(Schedule))
    for spec in specs:
        if spec.name in request.faults and not spec.follows(schedule):
            able = ", ".join(name for name, other in faults().items() if other.follows(schedule))
            raise UsageError(f"fault {spec.name} cannot be {schedule}; {able} can; name some of them with --faults")
    return [spec for spec in specs if spec.follows(schedule)]


def unavailable_reason(spec: FaultSpec, app: AppSpec) -> str:
    """Return why a fault cannot be applied to an application; empty when it can."""
    if app.deployed is not None and "runtime" in spec.needs:
        return f"works on programs of ours only, and somebody else has deployed {app.name}"
    if spec.targets(app):
        return ""
    drivers = {service.store_driver for service in app.services.values() if service.store_driver}
    originals = sorted(name for name in drivers if isinstance(STORE_DRIVERS.get(name), OriginalDriver))
    stores = f" with stores of the kinds {' and '.join(originals)}" if originals else ""
    return f"has no possible target in {app.name}{stores}"
