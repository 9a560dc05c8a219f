"""Times of the harmless changes ("decoys") in every episode, and of the incidents of a recording.

Decoys are drawn from the seed alone, independent of the fault and its target, so that neither their number nor their
services reveal the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from pydantic import ConfigDict, Field

from faultset.collector.faults.registry import FaultSpec, get_fault
from faultset.collector.faults.targets import (
    list_code_services,
    list_components_without_volumes,
    list_operators,
    list_replicated_frontends,
)
from faultset.collector.platforms.hosts import Phases
from faultset.collector.spec.app import AppSpec
from faultset.core.documents import STRICT
from faultset.core.errors import UsageError
from faultset.core.times import duration_text
from faultset.datasets.format.context import Sampling

DecoyKind = Literal["rollout", "restart", "scale-out", "replica-restart", "configuration", "setting", "node-load"]
DECOY_KINDS: tuple[DecoyKind, ...] = get_args(DecoyKind)
MAX_DECOYS = 20
_SHORTEST_S, _LONGEST_S = 6.0, 40.0
"""Range of the time between two steps of a decoy; shorter in short views."""


@dataclass(frozen=True, kw_only=True)
class Decoy:
    """One harmless change."""

    number: int
    """Position among the decoys of the episode, starting at 0."""
    times_s: tuple[float, float, float]
    """Times of its steps in seconds after the start of the view; most kinds use only the first."""
    kind_position: float
    """Position, from 0 to 1, in the list of kinds that the application allows."""
    service_position: float
    """Position, from 0 to 1, in the list of services that allow the kind."""
    seed: int
    """Seed of the values that the change sets."""

    def choose(self, app: AppSpec) -> tuple[DecoyKind, str]:
        possible: dict[DecoyKind, tuple[str, ...]] = {
            kind: services for kind in DECOY_KINDS if (services := eligible_services(kind, app))
        }
        kinds: list[DecoyKind] = list(possible)
        kind = kinds[int(self.kind_position * len(kinds))]
        return kind, possible[kind][int(self.service_position * len(possible[kind]))]


def draw_decoys(phases: Phases, mean: int, rng: np.random.Generator) -> tuple[Decoy, ...]:
    """Draw the decoys of an episode in time order; at least one unless `mean` is 0."""
    longest_s = max(_SHORTEST_S, min(_LONGEST_S, phases.view_s / 6))
    count = min(MAX_DECOYS, 1 + int(rng.poisson(mean - 1))) if mean else 0
    decoys = []
    for at_s in sorted(rng.uniform(0.02, 0.98, count) * phases.view_s):
        first_s, second_s = rng.uniform(_SHORTEST_S, longest_s, 2)
        kind_position, service_position = rng.random(2)
        decoys.append(
            Decoy(
                number=len(decoys),
                times_s=(float(at_s), float(at_s + first_s), float(at_s + first_s + second_s)),
                kind_position=float(kind_position),
                service_position=float(service_position),
                seed=int(rng.integers(2**31)),
            )
        )
    return tuple(decoys)


def eligible_services(kind: DecoyKind, app: AppSpec) -> tuple[str, ...]:
    """Return the services that a change of this kind does not harm."""
    return _ELIGIBLE[kind](app)


def _list_updatable(app: AppSpec) -> tuple[str, ...]:
    return (*list_code_services(app), *list_operators(app)) if app.deployed is None else ()


def _list_restartable(app: AppSpec) -> tuple[str, ...]:
    """Return the services whose new pods can become ready before the old ones stop, and the operator."""
    return (*list_code_services(app), *list_replicated_frontends(app), *list_operators(app))


def _list_scalable(app: AppSpec) -> tuple[str, ...]:
    services = list_code_services(app) if app.deployed is None else ()
    return (*services, *list_components_without_volumes(app))


def _list_all(app: AppSpec) -> tuple[str, ...]:
    return tuple(app.services) if app.deployed is None else ()


def _list_changeable(app: AppSpec) -> tuple[str, ...]:
    return tuple(name for name in app.services if app.has_deployment(name) or name in app.components)


_ELIGIBLE: Mapping[DecoyKind, Callable[[AppSpec], tuple[str, ...]]] = {
    "rollout": _list_updatable,
    "restart": _list_restartable,
    "scale-out": _list_scalable,
    "replica-restart": _list_scalable,
    "configuration": _list_all,
    "setting": _list_changeable,
    "node-load": _list_all,
}


LENGTH_SPREAD = 0.4
"""Largest deviation of an incident's length from its mean, as a share of the mean."""
OVERLAP_SHARES = (0.2, 0.8)
"""Part of the previous incident in which an overlapping incident starts."""
LATE_S = 15.0
"""Time after a recording until its telemetry is complete."""
RECOVERY_S = 60.0
"""Seconds of each gap that are reserved for the recovery."""
DECOY_BLOCK_VIEWS = 3.0
"""Decoys are drawn for blocks of this many views; each block gets as many decoys as an episode."""
_CLEARANCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class PlannedIncident:
    """A fault of a recording."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    at_s: float
    """Seconds of recorded time before its injection."""
    length_s: float
    """Seconds until it is undone."""
    fault: str
    """Name of the fault."""
    target: str
    """Service to which the fault is applied."""
    seed: int
    """Seed of its injection."""
    overlaps: bool = False
    """Whether it starts while the previous incident is active."""

    @property
    def end_s(self) -> float:
        """Seconds of recorded time before its undo."""
        return self.at_s + self.length_s


@dataclass(frozen=True, kw_only=True)
class RecordingPlan:
    """Length, incidents and sampling of a recording."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    duration_s: Annotated[float, Field(gt=0)]
    """Seconds of telemetry."""
    chunk_s: Annotated[float, Field(gt=0)]
    """Seconds of a chunk."""
    incidents: tuple[PlannedIncident, ...] = ()
    """Incidents in time order."""
    sampling: Sampling = field(default_factory=Sampling)
    """Share of the traces and levels of the log lines that are written."""


def compute_min_gap_s(phases: Phases) -> float:
    """Return the minimum time between two incidents: the recovery, and the healthy time before a fault."""
    return RECOVERY_S + phases.baseline_s


def max_incidents(duration_s: float, phases: Phases) -> int:
    """Return how many incidents fit into a recording if none overlap."""
    slot_s = compute_min_gap_s(phases) + (1 + LENGTH_SPREAD) * phases.fault_s
    return max(0, int((duration_s - phases.baseline_s) // slot_s))


def check_recording(duration_s: float, chunk_s: float, incidents: int, overlap: float, phases: Phases) -> None:
    """Raise UsageError if a recording is too short for its chunks or its incidents."""
    if duration_s < phases.warmup_s + chunk_s / 10:
        raise UsageError(
            f"--recording must be at least {duration_text(phases.warmup_s + chunk_s / 10)} long, the warm-up and a "
            f"tenth of a chunk, but is {duration_text(duration_s)}. Give a longer duration"
        )
    limit = max_incidents(duration_s, phases)
    if incidents - round(overlap * incidents) > limit:
        raise UsageError(
            f"--incidents must be at most {limit} in {duration_text(duration_s)} with --faulty {phases.fault_s:g} s "
            f"and --healthy {phases.baseline_s:g} s, but is {incidents}. Record longer, or shorten the phases"
        )


def draw_incidents(
    pairs: Sequence[tuple[str, str]], duration_s: float, overlap: float, phases: Phases, rng: np.random.Generator
) -> tuple[PlannedIncident, ...]:
    """Draw times for pairs of fault and target, in the given order.

    The time that incidents and minimum gaps leave free is divided among the gaps at random. `overlap` is the share of
    the incidents that start while the previous one is active.
    """
    if not pairs:
        return ()
    lengths_s = phases.fault_s * rng.uniform(1 - LENGTH_SPREAD, 1 + LENGTH_SPREAD, len(pairs))
    overlapping = _choose_overlapping(pairs, overlap, rng)
    gap_s = compute_min_gap_s(phases)
    alone = [index for index in range(len(pairs)) if index not in overlapping]
    starts: dict[int, float] = {}
    shares = rng.dirichlet(np.ones(len(alone) + 1))
    spent_s = sum(lengths_s[index] + gap_s for index in alone) + sum(lengths_s[index] for index in overlapping)
    free_s = max(0.0, duration_s - phases.baseline_s - spent_s)
    end_s = phases.baseline_s
    for index in range(len(pairs)):
        if index in overlapping:
            starts[index] = starts[index - 1] + float(rng.uniform(*OVERLAP_SHARES)) * lengths_s[index - 1]
        else:
            starts[index] = end_s + free_s * float(shares[alone.index(index)])
        end_s = max(end_s, starts[index] + lengths_s[index] + gap_s)
    return tuple(
        PlannedIncident(
            at_s=round(float(starts[index]), 3),
            length_s=round(float(lengths_s[index]), 3),
            fault=fault,
            target=target,
            seed=int(rng.integers(2**31)),
            overlaps=index in overlapping,
        )
        for index, (fault, target) in enumerate(pairs)
    )


def _choose_overlapping(pairs: Sequence[tuple[str, str]], overlap: float, rng: np.random.Generator) -> set[int]:
    """Choose incidents that overlap the previous one: on another target, and never two in a row."""
    chosen: set[int] = set()
    for index in rng.permutation(np.arange(1, len(pairs))).tolist():
        if len(chosen) >= round(overlap * len(pairs)):
            break
        if pairs[index][1] != pairs[index - 1][1] and chosen.isdisjoint({index - 1, index + 1}):
            chosen.add(index)
    return chosen


def draw_recording_decoys(
    plan: RecordingPlan, phases: Phases, mean: int, rng: np.random.Generator
) -> tuple[tuple[Decoy, dict[str, FaultSpec]], ...]:
    """Draw the harmless changes of a recording, each with the faults of nearby incidents by target.

    `mean` is their mean number in `DECOY_BLOCK_VIEWS` views.
    """
    block = replace(
        phases, baseline_s=DECOY_BLOCK_VIEWS * phases.baseline_s, fault_s=DECOY_BLOCK_VIEWS * phases.fault_s
    )
    decoys: list[tuple[Decoy, dict[str, FaultSpec]]] = []
    start_s = 0.0
    while mean and start_s < plan.duration_s:
        for decoy in draw_decoys(block, mean, rng):
            first_s, second_s, third_s = (start_s + time_s for time_s in decoy.times_s)
            if third_s < plan.duration_s:
                faults = {
                    incident.target: get_fault(incident.fault)
                    for incident in plan.incidents
                    if incident.at_s - _CLEARANCE_S < third_s and first_s < incident.end_s + _CLEARANCE_S
                }
                decoys.append((replace(decoy, number=0, times_s=(first_s, second_s, third_s)), faults))
        start_s += block.view_s
    return tuple(decoys)
