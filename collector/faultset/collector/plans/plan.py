"""The plan of one episode: application, fault, target, lengths, load, seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict

from faultset.collector.load.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.plans.options import NoFaultKind
from faultset.collector.plans.timeline import Decoy, RecordingPlan, draw_decoys
from faultset.collector.platforms.hosts import Phases, load_host_class
from faultset.collector.platforms.impairments import Course, Schedule, draw_course
from faultset.collector.spec.app import StoreChoice
from faultset.core.documents import STRICT, check_type, parse_object
from faultset.core.errors import DataError, unknown_name
from faultset.core.files import read_json_lines
from faultset.core.printable import count_text
from faultset.core.regular_files import read_regular
from faultset.core.times import duration_text
from faultset.datasets.format.episodes import JOURNAL_FILE
from faultset.datasets.format.labels import join_distinct

OWN_INJECTOR = "agent"
"""Default injector on a cluster; plans store it as None."""


def profile_phases(profile: str, platform: str) -> Phases:
    """Return the phases of a profile on a platform; raise UsageError if either is unknown."""
    profiles = load_host_class(platform).profiles
    if profile not in profiles:
        raise unknown_name("profile", profile, profiles)
    return profiles[profile]


@dataclass(frozen=True, kw_only=True)
class PlannedFault:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    fault: str
    """Name of the fault."""
    target: str
    """Name of the service."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One planned episode; everything random in it follows from `seed`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    episode: str
    """Id of the episode."""
    app: str
    """Name of the application."""
    platform: str
    """Name of the platform on which it runs."""
    fault: str | None
    """Name of the fault; None for an episode without one."""
    no_fault_kind: NoFaultKind | None
    """plain, disturbed or sham; None for an episode with a fault."""
    target: str | None
    """Service that the fault is applied to; None for an episode without one."""
    seed: int
    """Seed of everything random in the episode."""
    phases: Phases
    """Lengths of the phases."""
    profile: str
    """Name of the profile that the phases come from; `custom` for other lengths."""
    rate_rps: float
    """Client requests per second."""
    mix: str
    """Workload mix."""
    step_s: float
    """Interval of metrics in seconds."""
    trace_sampling: float = 1.0
    """Share of client requests whose spans are kept."""
    app_file: str | None = None
    """Path of the application's description if it is not built in or installed."""
    sources: tuple[str, ...] = ()
    """Names of additional sources of telemetry."""
    traffic: Traffic = CONSTANT_TRAFFIC
    """Changes of the request rate, and regions of clients."""
    further: tuple[PlannedFault, ...] = ()
    """Further faults on other targets, injected together with `fault`."""
    schedule: Schedule | None = None
    """How the faults act over time; None for each fault's default."""
    injector: str | None = None
    """Injector; None for the platform's default."""
    stores: StoreChoice | None = None
    """Servers of the application's stores; None for Redis."""
    rollouts: int = 0
    """Mean number of harmless changes in the view; see `plans.timeline`."""
    recording: RecordingPlan | None = None
    """Length, incidents and sampling of a recording; None for an episode."""

    @property
    def faults(self) -> tuple[PlannedFault, ...]:
        """All faults in the order in which they are injected; none in an episode without a fault."""
        if self.fault is None or self.target is None:
            return ()
        return (PlannedFault(fault=self.fault, target=self.target), *self.further)

    @property
    def all_faults(self) -> tuple[PlannedFault, ...]:
        """The faults of the episode, and the faults of a recording's incidents."""
        incidents = () if self.recording is None else self.recording.incidents
        injected = (PlannedFault(fault=incident.fault, target=incident.target) for incident in incidents)
        return (*self.faults, *injected)

    @property
    def fault_name(self) -> str:
        """Joined names of all faults; empty without a fault."""
        return join_distinct(planned.fault for planned in self.faults)

    @property
    def target_name(self) -> str:
        """Joined names of all targets; empty without a fault."""
        return join_distinct(planned.target for planned in self.faults)

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the platform for this plan."""
        return {} if self.injector is None else {"injector": self.injector}

    @property
    def min_rate_rps(self) -> float:
        """Smallest mean request rate of the load."""
        return self.rate_rps * self.traffic.pattern.min_share

    @property
    def title(self) -> str:
        """Short description of the injection for users."""
        if self.recording is not None:
            incidents = len(self.recording.incidents)
            return f"recording of {duration_text(self.recording.duration_s)} with {count_text(incidents, 'incident')}"
        faults = " and ".join(f"{planned.fault} on {planned.target}" for planned in self.faults)
        return faults or f"no fault, {self.no_fault_kind}"

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str | Mapping[str, Any]) -> Plan:
        """Read a plan from `to_json`; raise DataError if it is invalid."""
        return check_type(parse_object(text, "a plan") if isinstance(text, str) else dict(text), Plan, "a plan")


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Everything that the seed decides within an episode, each drawn from a separate stream."""

    onset_s: float
    """Start of the fault, or of the harmless change that replaces it, in seconds after the start of the view."""
    decoys: tuple[Decoy, ...]
    """Harmless changes within the view, in time order."""
    fault: np.random.Generator
    load_seed: int
    further: tuple[np.random.Generator, ...] = ()
    """Generator for the injection of each further fault."""
    courses: tuple[Course | None, ...] = (None,)
    """Course of each fault over time; None for its default."""


def random_draws(plan: Plan, *, has_decoys: bool = True) -> Draws:
    """Draw the random times and generators of an episode from its seed.

    The onset is uniform within 20 % of the baseline's length around the baseline's end, so that neither the view's
    length nor any boundary reveals it. The streams of faults come last, so that the others are the same without a
    fault.
    """
    seeds = np.random.SeedSequence(plan.seed).spawn(4 + 2 * len(plan.faults))
    onset, fault, decoys, load, *more = (np.random.default_rng(seed) for seed in seeds)
    further, course_rngs = more[: len(plan.further)], more[len(plan.faults) :]
    return Draws(
        onset_s=float(onset.uniform(0.8, 1.2)) * plan.phases.baseline_s,
        decoys=draw_decoys(plan.phases, plan.rollouts if has_decoys else 0, decoys),
        fault=fault,
        load_seed=int(load.integers(2**31)),
        further=tuple(further),
        courses=tuple(
            None if plan.schedule is None else draw_course(plan.schedule, plan.phases.fault_s, rng)
            for rng in course_rngs
        ),
    )


LIMIT_BYTES = 2**16


def read_plan(path: Path) -> Plan:
    """Return the plan in a JSON file, or of the episode in a folder; raise DataError if there is none."""
    if not path.is_dir():
        text = read_regular(path, limit_bytes=LIMIT_BYTES).decode(errors="replace")
        return Plan.from_json(parse_object(text, str(path)))
    journal = path / JOURNAL_FILE
    if not journal.exists():
        raise DataError(
            f"{path} must be an episode collected by faultset, but has no {JOURNAL_FILE}. Give another folder"
        )
    plan = find_plan(read_json_lines(journal))
    if plan is None:
        raise DataError(f"{journal} must contain a plan, but has none. Give an episode collected with this release")
    return plan


def find_plan(records: Iterable[Mapping[str, Any]]) -> Plan | None:
    """Return the plan in the records of a journal; None if it has none, as in imported data."""
    for record in records:
        if record.get("state") == "note" and record.get("verb") == "plan":
            return Plan.from_json(record.get("args") or {})
    return None
