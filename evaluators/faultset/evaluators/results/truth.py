"""What is true of an episode, as scoring needs it: the label and parts of the context in one record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from faultset.datasets.format.context import IMPORTED
from faultset.datasets.format.labels import AlarmPlace
from faultset.datasets.training.folds import cluster_of, problems_of

if TYPE_CHECKING:
    from faultset.datasets.format.context import EpisodeContext
    from faultset.datasets.format.labels import Label, RootCause

UNFELT = "unfelt"
"""Verdict of a fault that clients did not feel, and of which it is not known whether its target's telemetry moved."""


class FaultTruth(NamedTuple):
    """One of several faults of an episode."""

    fault: str
    target: str
    system_level: str | None
    fault_type: str | None


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What scoring needs to know about an episode; never shown to a baseline."""

    episode: str
    """Id of the episode."""
    app: str
    """Name of the application."""
    fault: str | None
    """Name of the fault, of several joined by " + "; None without one."""
    no_fault_kind: str | None
    """plain, disturbed or sham; None with a fault."""
    targets: tuple[str, ...]
    """Services that the fault was applied to."""
    causes: tuple[tuple[str, ...], ...]
    """For every root cause the candidates accepted for it."""
    candidates: tuple[str, ...]
    """Services that an answer may name."""
    pod_causes: tuple[str, ...] = ()
    """Pods at fault, where the truth names any."""
    metric_causes: tuple[tuple[str, str], ...] = ()
    """(service, metric) pairs at fault, where the truth names any; a metric may be a pattern with `*`."""
    calls: tuple[tuple[str, str], ...] = ()
    """Declared call graph as (caller, callee)."""
    system_level: str | None
    """Where the fault is; None without one."""
    fault_type: str | None
    """What kind of fault it is; None without one."""
    faults: tuple[FaultTruth, ...] = ()
    """Every fault by itself, where there are several and the label tells them apart."""
    pauses: tuple[tuple[int, int], ...] = ()
    """Times after the onset in which no fault acted, as (begin, end) in UTC nanoseconds."""
    verdict: str
    """manifest, latent, silent, unknown or none."""
    profile: str
    """Lengths of the phases: quick, standard or custom."""
    view_start_ns: int
    """Beginning of the view, UTC nanoseconds, as all times here."""
    view_end_ns: int
    """End of the view."""
    reference_end_ns: int
    """End of the part that is known to be healthy."""
    onset_ns: int | None
    """None without a fault, and where the source does not tell when it began."""
    manifest_ns: int | None
    """When clients first felt the fault; None where they did not."""
    alarm_place: AlarmPlace | None = None
    """Where the source says that the alarm was seen; not kept in rows, because nothing is scored by it."""

    @property
    def faulty(self) -> bool:
        """Whether a fault was injected."""
        return self.fault is not None

    @property
    def cluster(self) -> tuple[str, ...]:
        """Key under which repetitions of one problem count as one; see `cluster_of`."""
        return cluster_of(self.episode, self.app, self.fault, self.targets)

    @property
    def problems(self) -> tuple[tuple[str, ...], ...]:
        """Application, fault and target of every fault; of all of them together where they are not told apart."""
        if self.faults:
            return problems_of(self.app, [(one.fault, one.target) for one in self.faults])
        return () if self.fault is None else (self.cluster,)

    @property
    def diagnoses(self) -> frozenset[tuple[str, str]]:
        """The pairs of system level and fault type that are right; empty where one is not known."""
        pairs = [(one.system_level, one.fault_type) for one in self.faults] or [(self.system_level, self.fault_type)]
        known = frozenset((level, kind) for level, kind in pairs if level and kind)
        return known if len(known) == len(set(pairs)) else frozenset()


def truth_of(label: Label, context: EpisodeContext) -> Truth:
    """Take what scoring needs from an episode's label.

    The onset is the start of the injection. A root cause is found by its service or by any accepted name that is
    a candidate; a fault whose causes are no candidates has none and is no localization case. A cause of kind Pod
    under its service's own name says that a pod of that service is at fault, but not which.
    """
    fault = label.fault
    candidates = tuple(context.services)
    causes = label.root_causes if fault is not None else ()
    return Truth(
        episode=context.episode,
        app=context.app,
        fault=fault,
        no_fault_kind=label.no_fault_kind,
        targets=tuple(label.targets),
        causes=tuple(dict.fromkeys(_accepted(causes, candidates))),
        candidates=candidates,
        pod_causes=tuple(dict.fromkeys(cause.name for cause in causes if _names_a_pod(cause))),
        metric_causes=tuple(dict.fromkeys((cause.service, cause.metric) for cause in causes if cause.metric)),
        calls=tuple(context.calls),
        system_level=label.system_level,
        fault_type=label.fault_type,
        faults=tuple(
            FaultTruth(one.fault, one.target, one.system_level, one.fault_type)
            for one in label.faults
            if len(label.faults) > 1
        ),
        pauses=tuple(_pauses(label)),
        verdict=_verdict(label, context),
        profile=label.profile,
        view_start_ns=context.view_start_ns,
        view_end_ns=context.view_end_ns,
        reference_end_ns=context.reference_end_ns,
        onset_ns=label.onset_ns,
        manifest_ns=label.first_manifest_ns if fault is not None else None,
        alarm_place=label.alarm_place,
    )


def _pauses(label: Label) -> Iterator[tuple[int, int]]:
    """Yield the times between the onset and the end of the view in which none of the faults acted."""
    if label.inject_start_ns is None or not label.faults or not all(one.intervals for one in label.faults):
        return
    times = sorted((one.begin_ns, one.end_ns) for fault in label.faults for one in fault.intervals)
    until_ns = times[0][0]
    for begin_ns, end_ns in [*times, (label.view_end_ns, label.view_end_ns)]:
        if until_ns < min(begin_ns, label.view_end_ns):
            yield until_ns, min(begin_ns, label.view_end_ns)
        until_ns = max(until_ns, end_ns)


def _verdict(label: Label, context: EpisodeContext) -> str:
    """Return the verdict; what was collected here and is unknown is known not to have reached clients."""
    return UNFELT if label.verdict == "unknown" and context.platform != IMPORTED else label.verdict


def _names_a_pod(cause: RootCause) -> bool:
    return cause.kind == "Pod" and bool(cause.name) and cause.name != cause.service


def _accepted(causes: Iterable[RootCause], candidates: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    for cause in causes:
        accepted = [cause.service, *sorted(cause.accepted)]
        names = tuple(dict.fromkeys(name for name in accepted if name in candidates))
        if names:
            yield names
