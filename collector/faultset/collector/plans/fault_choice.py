"""Which faults a campaign injects into which application, on which targets, alone or in pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import get_args

import numpy as np

from faultset.collector.faults.registry import ALL, NOOP, FaultSpec, faults, get_fault
from faultset.collector.plans.plan import PlannedFault
from faultset.collector.plans.requests import CampaignRequest
from faultset.collector.platforms.impairments import Schedule
from faultset.collector.runtime.stores.drivers import STORE_DRIVERS
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name

_Targets = tuple[str, str]
_SLACK = 2
"""How much more often than the rarest a target may have been used and be drawn again."""


def faults_alone(
    repetitions: Sequence[Sequence[FaultSpec]], app: AppSpec, targets: Sequence[str], rng: np.random.Generator
) -> list[tuple[PlannedFault, ...]]:
    """Return every fault of each repetition with its target.

    Targets are used about equally often; as far as that allows, a fault that is repeated comes to other ones.

    Raises
    ------
    UsageError
        One of `targets` is no service, or a fault cannot be applied to any of them.
    """
    used: Counter[str] = Counter()
    had: Counter[tuple[str, str]] = Counter()
    drawn: list[tuple[PlannedFault, ...]] = []
    for specs in repetitions:
        for spec in _scarce_first(specs, app):
            names = _possible_targets(spec, app, targets)
            least = min(used[name] for name in names)
            names = [name for name in names if used[name] <= least + _SLACK]
            ranks = {name: (had[spec.name, name], used[name]) for name in names}
            target = str(rng.choice([name for name, rank in ranks.items() if rank == min(ranks.values())]))
            used[target] += 1
            had[spec.name, target] += 1
            drawn.append((PlannedFault(fault=spec.name, target=target),))
    return drawn


def faults_in_pairs(
    repetitions: Sequence[Sequence[FaultSpec]], app: AppSpec, targets: Sequence[str], rng: np.random.Generator
) -> list[tuple[PlannedFault, ...]]:
    """Return pairs of different faults, with every fault of each repetition, each pair on two targets.

    No name is a right answer for both faults of a pair. Where there is a choice, neither target calls the other,
    directly or through others, and targets are used about equally often. An odd fault gets a partner that others had.

    Raises
    ------
    UsageError
        There is one fault only, or one that can be together with no other; or as `faults_alone` does.
    """
    specs = list(dict.fromkeys(spec for repetition in repetitions for spec in repetition))
    if len(specs) == 1:
        raise UsageError(
            f"--concurrent 2 injects two different faults at once, but of --faults only {specs[0].name} is for "
            f"{app.name}; name another one"
        )
    possible = {spec.name: _possible_targets(spec, app, targets) for spec in specs}
    called = {name: _called_by(app, name) for name in app.services}

    @cache
    def places(first: FaultSpec, second: FaultSpec) -> list[_Targets]:
        return [
            (one, other)
            for one in possible[first.name]
            for other in possible[second.name]
            if _answers(first, app, one).isdisjoint(_answers(second, app, other))
        ]

    def rank(pair: _Targets) -> tuple[bool, int]:
        one, other = pair
        return other in called[one] or one in called[other], used[one] + used[other]

    used: Counter[str] = Counter()
    drawn: list[tuple[PlannedFault, ...]] = []
    for repetition in repetitions:
        left = _scarce_first(repetition, app)
        while left:
            first = left.pop(0)
            partners = [spec for spec in left if places(first, spec)]
            partners = partners or [spec for spec in specs if spec is not first and places(first, spec)]
            if not partners:
                raise UsageError(
                    f"fault {first.name} can be together with none of the others on another target in {app.name}; "
                    "name more with --faults or --targets, or leave it out"
                )
            second = partners[int(rng.integers(len(partners)))]
            left = [spec for spec in left if spec is not second]
            ranks = [rank(pair) for pair in places(first, second)]
            best = [pair for pair, found in zip(places(first, second), ranks, strict=True) if found == min(ranks)]
            chosen = best[int(rng.integers(len(best)))]
            used.update(chosen)
            pair = [PlannedFault(fault=s.name, target=t) for s, t in zip((first, second), chosen, strict=True)]
            drawn.append(tuple(sorted(pair, key=lambda one: one.fault)))
    return drawn


def _scarce_first(specs: Sequence[FaultSpec], app: AppSpec) -> list[FaultSpec]:
    return sorted(specs, key=lambda spec: (len(spec.targets(app)), spec.name))


def _possible_targets(spec: FaultSpec, app: AppSpec, targets: Sequence[str]) -> list[str]:
    for name in targets:
        if name not in app.services:
            raise unknown_name("target", name, app.services)
    possible = [name for name in spec.targets(app) if not targets or name in targets]
    if not possible:
        raise UsageError(
            f"fault {spec.name} cannot be applied to {' or '.join(targets)}; "
            f"its targets in {app.name} are {', '.join(spec.targets(app))}"
        )
    return possible


def _answers(spec: FaultSpec, app: AppSpec, target: str) -> frozenset[str]:
    return frozenset((target, *spec.also_accepted(app, target)))


def _called_by(app: AppSpec, service: str) -> frozenset[str]:
    """Return the services that a service calls, directly or through others."""
    found: set[str] = set()
    left = [service]
    while left:
        caller = left.pop()
        callees = {callee for one, callee in app.calls if one == caller} - found
        found |= callees
        left += callees
    return frozenset(found)


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
