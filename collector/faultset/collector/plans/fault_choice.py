"""Choose the faults of a campaign, their applications and targets, alone or in pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

import numpy as np

from faultset.collector.faults.registry import ALL, NOOP, FaultSpec, faults, get_fault
from faultset.collector.plans.plan import PlannedFault
from faultset.collector.plans.requests import CampaignRequest
from faultset.collector.platforms.impairments import Schedule
from faultset.collector.runtime.stores import STORE_DRIVERS
from faultset.collector.runtime.stores.original_driver import OriginalDriver
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError, needs_extra, unknown_name

_TargetPair = tuple[str, str]
_MAX_RANDOM_COST = 1_000
_USE_COST = 1_000_000
_MAX_EXTRA_USES = 2
"""Maximum difference between the uses of a target and of the least used target."""


def draw_faults(
    repetitions: Sequence[Sequence[FaultSpec]], app: AppSpec, targets: Sequence[str], rng: np.random.Generator
) -> list[tuple[PlannedFault, ...]]:
    """Return every fault of each repetition with its target.

    Targets are used about equally often. Within that limit, repetitions of a fault get different targets. Raises
    UsageError if `targets` contains an unknown service, or a fault cannot be applied to any of them.
    """
    uses: Counter[str] = Counter()
    uses_by_fault: Counter[tuple[str, str]] = Counter()
    result: list[tuple[PlannedFault, ...]] = []
    for specs in repetitions:
        for spec in _sort_by_target_count(specs, app):
            names = _list_possible_targets(spec, app, targets)
            fewest_uses = min(uses[name] for name in names)
            names = [name for name in names if uses[name] <= fewest_uses + _MAX_EXTRA_USES]
            ranks = {name: (uses_by_fault[spec.name, name], uses[name]) for name in names}
            target = str(rng.choice([name for name, rank in ranks.items() if rank == min(ranks.values())]))
            uses[target] += 1
            uses_by_fault[spec.name, target] += 1
            result.append((PlannedFault(fault=spec.name, target=target),))
    return result


def draw_fault_pairs(
    repetitions: Sequence[Sequence[FaultSpec]], app: AppSpec, targets: Sequence[str], rng: np.random.Generator
) -> list[tuple[PlannedFault, ...]]:
    """Return pairs of different faults on different targets that contain every fault of each repetition.

    The correct answers for the two faults are disjoint. If possible, neither target calls the other, directly or
    indirectly. Targets are used about equally often. With an odd number of faults, one partner is used twice. Raises
    UsageError if a fault has no possible partner, or as `draw_faults` does.
    """
    specs = list(dict.fromkeys(spec for repetition in repetitions for spec in repetition))
    if len(specs) == 1:
        raise UsageError(
            f"--concurrent 2 needs two different faults, but only {specs[0].name} of --faults applies to {app.name}. "
            "Name another fault"
        )
    pairs = _PairDraw(specs, app, targets, rng)
    result: list[tuple[PlannedFault, ...]] = []
    for repetition in repetitions:
        rest = _sort_by_target_count(repetition, app)
        while rest:
            first = rest.pop(0)
            second = pairs.draw_partner(first, rest)
            rest = [spec for spec in rest if spec is not second]
            chosen = pairs.draw_targets(first, second)
            planned = [PlannedFault(fault=s.name, target=t) for s, t in zip((first, second), chosen, strict=True)]
            result.append(tuple(sorted(planned, key=lambda fault: fault.fault)))
    return result


class _PairDraw:
    """Draws the second fault and the targets of a pair."""

    def __init__(self, specs: Sequence[FaultSpec], app: AppSpec, targets: Sequence[str], rng: np.random.Generator):
        self._specs, self._app, self._rng = specs, app, rng
        self._possible = {spec.name: _list_possible_targets(spec, app, targets) for spec in specs}
        self._callees = {name: _find_callees(app, name) for name in app.services}
        self._uses: Counter[str] = Counter()
        self._pairs: dict[tuple[str, str], list[_TargetPair]] = {}

    def draw_partner(self, first: FaultSpec, rest: Sequence[FaultSpec]) -> FaultSpec:
        """Draw the second fault, if possible one of the rest; raise UsageError if there is none."""
        partners = [spec for spec in rest if self._list_targets(first, spec)]
        partners = partners or [spec for spec in self._specs if spec is not first and self._list_targets(first, spec)]
        if not partners:
            raise UsageError(
                f"fault {first.name} needs a partner on another target in {self._app.name}, but there is none. Name "
                "more --faults or --targets, or leave it out"
            )
        return partners[int(self._rng.integers(len(partners)))]

    def draw_targets(self, first: FaultSpec, second: FaultSpec) -> _TargetPair:
        pairs = self._list_targets(first, second)
        lowest = min(map(self._rank, pairs))
        best = [pair for pair in pairs if self._rank(pair) == lowest]
        chosen = best[int(self._rng.integers(len(best)))]
        self._uses.update(chosen)
        return chosen

    def _list_targets(self, first: FaultSpec, second: FaultSpec) -> list[_TargetPair]:
        names = (first.name, second.name)
        if names not in self._pairs:
            self._pairs[names] = [
                (target, other)
                for target in self._possible[first.name]
                for other in self._possible[second.name]
                if _list_accepted_names(first, self._app, target).isdisjoint(
                    _list_accepted_names(second, self._app, other)
                )
            ]
        return self._pairs[names]

    def _rank(self, pair: _TargetPair) -> tuple[bool, int]:
        target, other = pair
        has_calls = other in self._callees[target] or target in self._callees[other]
        return has_calls, self._uses[target] + self._uses[other]


def _sort_by_target_count(specs: Sequence[FaultSpec], app: AppSpec) -> list[FaultSpec]:
    return sorted(specs, key=lambda spec: (len(spec.targets(app)), spec.name))


def _list_possible_targets(spec: FaultSpec, app: AppSpec, targets: Sequence[str]) -> list[str]:
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


def _list_accepted_names(spec: FaultSpec, app: AppSpec, target: str) -> frozenset[str]:
    return frozenset((target, *spec.also_accepted(app, target)))


def _find_callees(app: AppSpec, service: str) -> frozenset[str]:
    callees: set[str] = set()
    queue = [service]
    while queue:
        caller = queue.pop()
        new = {callee for other, callee in app.calls if other == caller} - callees
        callees |= new
        queue += new
    return frozenset(callees)


def choose_faults(names: Sequence[str], app: AppSpec) -> list[FaultSpec]:
    """Return the named faults for an application; `all` selects every fault that applies to it.

    Raises UsageError if a name is unknown, or a named fault has no target in the application.
    """
    if ALL in names:
        return [spec for spec in faults().values() if not unavailable_reason(spec, app)]
    chosen = [get_fault(name) for name in dict.fromkeys(names) if name != NOOP]
    for spec in chosen:
        if reason := unavailable_reason(spec, app):
            usable = ", ".join(name for name, other in faults().items() if not unavailable_reason(other, app))
            raise UsageError(f"fault {spec.name} {reason}; choose from {usable}")
    return chosen


def choose_faults_by_app(
    request: CampaignRequest, apps: Sequence[AppSpec], rng: np.random.Generator
) -> dict[str, list[list[FaultSpec]]]:
    """Return the faults of each repetition of a campaign, by the application's name.

    Each application gets every fault that applies to it. With --spread, each fault goes to one application: all
    applications get about the same number of faults. Repetitions of a fault go to different applications if possible.
    Raises UsageError if a name is unknown, or a named fault has no target or cannot follow the schedule.
    """
    if not request.spread:
        chosen = {app.name: select_by_schedule(choose_faults(request.faults, app), request) for app in apps}
        return {name: [specs] * request.repeat for name, specs in chosen.items()}
    suitable_apps = {
        spec: [app.name for app in apps if not unavailable_reason(spec, app)]
        for spec in select_by_schedule(_choose_faults_for_any(request.faults, apps), request)
    }
    faults_by_app: dict[str, list[list[FaultSpec]]] = {app.name: [[] for _ in range(request.repeat)] for app in apps}
    uses: Counter[tuple[FaultSpec, str]] = Counter()
    sizes: Counter[str] = Counter()
    for repetition in range(request.repeat):
        for spec in sorted(suitable_apps, key=lambda spec: (len(suitable_apps[spec]), spec.name)):
            ranks = {name: (uses[spec, name], sizes[name]) for name in suitable_apps[spec]}
            name = str(rng.choice([name for name, rank in ranks.items() if rank == min(ranks.values())]))
            uses[spec, name] += 1
            sizes[name] += 1
            faults_by_app[name][repetition].append(spec)
    return faults_by_app


def _choose_faults_for_any(names: Sequence[str], apps: Sequence[AppSpec]) -> list[FaultSpec]:
    specs = faults().values() if ALL in names else [get_fault(name) for name in names if name != NOOP]
    possible = [spec for spec in specs if any(not unavailable_reason(spec, app) for app in apps)]
    for spec in specs:
        if spec not in possible and ALL not in names:
            raise UsageError(
                f"fault {spec.name} has no possible target in {' or '.join(app.name for app in apps)}; "
                "name another application with --apps"
            )
    return possible


def divide_faults(
    choices: Sequence[Sequence[FaultSpec]], count: int, rng: np.random.Generator
) -> list[list[FaultSpec]]:
    """Return `count` faults for each recording, so that every fault is used about equally often overall.

    `choices` are the faults that are possible in each recording. Raises UsageError without the extra `evaluate`.
    """
    if not count or not all(choices):
        return [[] for _ in choices]
    try:
        import networkx as nx
    except ModuleNotFoundError as error:
        raise needs_extra("--incidents of recordings", "evaluate") from error
    # minimum-cost flow from faults to recordings: each further use of a fault costs more, and random costs break ties
    network = nx.MultiDiGraph()
    network.add_node("faults", demand=-count * len(choices))
    capacities: Counter[str] = Counter()
    for index, specs in enumerate(choices):
        network.add_node(index, demand=count)
        capacity = -(-count // len(specs))
        for spec in specs:
            cost = int(rng.integers(_MAX_RANDOM_COST))
            network.add_edge(spec.name, index, capacity=capacity, weight=cost)
            capacities[spec.name] += capacity
    for name, capacity in capacities.items():
        for use in range(capacity):
            network.add_edge("faults", name, capacity=1, weight=_USE_COST * (use + 1))
    flow = nx.min_cost_flow(network)
    return [[spec for spec in specs for _ in range(flow[spec.name][index][0])] for index, specs in enumerate(choices)]


def select_by_schedule(specs: Sequence[FaultSpec], request: CampaignRequest) -> list[FaultSpec]:
    """Return the faults that can follow the schedule of a request; raise UsageError if a named one cannot."""
    schedule = request.schedule
    if schedule is None:
        return list(specs)
    if schedule not in get_args(Schedule):
        raise unknown_name("schedule", schedule, get_args(Schedule))
    for spec in specs:
        if spec.name in request.faults and not spec.follows(schedule):
            suitable = ", ".join(name for name, other in faults().items() if other.follows(schedule))
            raise UsageError(f"fault {spec.name} cannot be {schedule}; choose --faults from {suitable}")
    return [spec for spec in specs if spec.follows(schedule)]


def unavailable_reason(spec: FaultSpec, app: AppSpec) -> str:
    """Return why a fault cannot be applied to an application; empty if it can."""
    if app.deployed is not None and "runtime" in spec.needs:
        return f"works only in services of faultset, but {app.name} is deployed without it"
    if spec.targets(app):
        return ""
    drivers = {service.store_driver for service in app.services.values() if service.store_driver}
    originals = sorted(name for name in drivers if isinstance(STORE_DRIVERS.get(name), OriginalDriver))
    stores = f" with stores of the kinds {' and '.join(originals)}" if originals else ""
    return f"has no possible target in {app.name}{stores}"
