"""Harmless changes of an episode in addition to its fault: number, times, kinds and services.

They are drawn from the seed alone, independent of the fault and its target, so that neither their number nor their
services reveal the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from faultset.collector.faults.targets import (
    list_code_services,
    list_components_without_volumes,
    list_operators,
    list_replicated_frontends,
)
from faultset.collector.platforms.hosts import Phases
from faultset.collector.spec.app import AppSpec

DecoyKind = Literal["rollout", "restart", "scale-out", "replica-restart", "configuration", "setting", "node-load"]
DECOY_KINDS: tuple[DecoyKind, ...] = get_args(DecoyKind)
MAX_DECOYS = 20
_SHORTEST_S, _LONGEST_S = 6.0, 40.0
"""Range of the time between two steps of a decoy; shorter in short views."""


@dataclass(frozen=True, kw_only=True)
class Decoy:
    """One harmless change.

    Attributes
    ----------
    number
        Position among the decoys of the episode, starting at 0.
    times_s
        Times of its steps in seconds after the start of the view; most kinds use only the first.
    kind_position, service_position
        Positions, from 0 to 1, in the list of kinds that the application allows, and in the list of services that
        allow the kind.
    seed
        Seed of the values that the change sets.
    """

    number: int
    times_s: tuple[float, float, float]
    kind_position: float
    service_position: float
    seed: int

    def choose(self, app: AppSpec) -> tuple[DecoyKind, str]:
        """Return the kind of the change and its service."""
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
