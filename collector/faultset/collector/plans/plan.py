"""What one episode will be: application, fault or none, target, lengths, load, seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

NoFaultKind = Literal["plain", "disturbed", "sham"]


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Lengths of an episode's phases in seconds.

    The view is baseline plus fault; the reference window is its healthy begin.
    """

    warmup_s: float
    baseline_s: float
    fault_s: float
    cooldown_s: float

    @property
    def view_s(self) -> float:
        """Length of the view, which is the same in every episode of a campaign."""
        return self.baseline_s + self.fault_s

    @property
    def reference_s(self) -> float:
        """Length of the window at the begin of the view in which no fault can be."""
        return 0.8 * self.baseline_s


QUICK = Phases(warmup_s=8.0, baseline_s=45.0, fault_s=45.0, cooldown_s=5.0)
STANDARD = Phases(warmup_s=30.0, baseline_s=180.0, fault_s=180.0, cooldown_s=30.0)
STANDARD_ON_CLUSTER = Phases(warmup_s=30.0, baseline_s=300.0, fault_s=300.0, cooldown_s=30.0)
"""Longer, so that a scrape every five seconds still gives about fifty reference samples."""
PROFILES: dict[str, Phases] = {"quick": QUICK, "standard": STANDARD}


def profile_phases(profile: str, platform: str) -> Phases:
    """Return the lengths that a profile stands for on a platform."""
    return STANDARD_ON_CLUSTER if (profile, platform) == ("standard", "kubernetes") else PROFILES[profile]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One planned episode; everything random in it follows from `seed`."""

    episode: str
    app: str
    platform: str
    fault: str | None
    no_fault_kind: NoFaultKind | None
    target: str | None
    seed: int
    phases: Phases
    profile: str
    rate_rps: float
    mix: str
    step_s: float
    trace_sampling: float = 1.0
    app_file: str | None = None
    """Where the application's description lies when it does not come with the product."""

    def to_json(self) -> str:
        """Write the plan as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str | Mapping[str, Any]) -> Plan:
        """Read a plan that `to_json` wrote."""
        record = dict(json.loads(text) if isinstance(text, str) else text)
        return Plan(**{**record, "phases": Phases(**record["phases"])})


@dataclass(frozen=True, kw_only=True)
class Draws:
    """What the seed decides within an episode, each from a stream of its own.

    Attributes
    ----------
    onset_s
        Begin of the fault, or of what a no-fault episode does instead, in seconds after the view's begin.
    change_s
        When the harmless changes are made, in seconds after the view's begin.
    """

    onset_s: float
    change_s: tuple[float, ...]
    fault: np.random.Generator
    changes: np.random.Generator
    load_seed: int


def draw(plan: Plan, harmless_changes: int = 2) -> Draws:
    """Draw the instants and streams of an episode from its seed.

    The onset is uniform within 20 % of the baseline's length around the baseline's end, so that neither the
    view's length nor any boundary tells it.
    """
    onset, fault, changes, load = (np.random.default_rng(s) for s in np.random.SeedSequence(plan.seed).spawn(4))
    baseline_s = plan.phases.baseline_s
    times = sorted(float(t) for t in changes.uniform(0.02, 0.98, harmless_changes) * plan.phases.view_s)
    return Draws(
        onset_s=float(onset.uniform(0.8, 1.2)) * baseline_s,
        change_s=tuple(times),
        fault=fault,
        changes=changes,
        load_seed=int(load.integers(2**31)),
    )
