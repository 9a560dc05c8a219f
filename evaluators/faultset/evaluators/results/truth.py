"""Ground truth of an episode for scoring: the label and parts of the context in one record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from faultset.datasets.format.context import IMPORTED
from faultset.datasets.format.labels import UNLABELLED, AlarmLocation
from faultset.datasets.training.folds import get_cluster_key, list_problems

if TYPE_CHECKING:
    from faultset.datasets.format.context import EpisodeContext
    from faultset.datasets.format.labels import Label, RootCause


UNNOTICED = "unnoticed"
"""Verdict of a fault without effect on clients, if its effect on the target's telemetry is unknown."""


class FaultTruth(NamedTuple):
    """One of several faults of an episode."""

    fault: str
    target: str
    system_level: str | None
    fault_type: str | None


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Everything that scoring needs to know about an episode; never passed to a baseline."""

    episode: str
    """Id of the episode."""
    app: str
    """Name of the application."""
    fault: str | None
    """Name of the fault, or several joined by " + "; None without a fault."""
    no_fault_kind: str | None
    """plain, disturbed, sham or unlabelled; None with a fault."""
    targets: tuple[str, ...]
    """Services that the fault was applied to."""
    causes: tuple[tuple[str, ...], ...]
    """For every root cause, the candidates accepted as answer."""
    candidates: tuple[str, ...]
    """Services that an answer may name."""
    pod_causes: tuple[str, ...] = ()
    """Pods at fault, if known."""
    metric_causes: tuple[tuple[str, str], ...] = ()
    """Pairs (service, metric) at fault, if known; a metric may be a pattern with `*`."""
    calls: tuple[tuple[str, str], ...] = ()
    """Declared call graph as (caller, callee)."""
    system_level: str | None
    """System level of the fault; None without a fault."""
    fault_type: str | None
    """Type of the fault; None without a fault."""
    faults: tuple[FaultTruth, ...] = ()
    """The faults, if there are several and the label describes each."""
    pauses: tuple[tuple[int, int], ...] = ()
    """Intervals (start, end) after the onset without an active fault, UTC nanoseconds."""
    verdict: str
    """manifest, latent, silent, unnoticed, unknown or none."""
    profile: str
    """Phase lengths: quick, standard, long or custom."""
    view_start_ns: int
    """Start of the view, UTC nanoseconds like all times here."""
    view_end_ns: int
    """End of the view."""
    reference_end_ns: int
    """End of the healthy reference."""
    onset_ns: int | None
    """Start of the injection; None without a fault or if unknown."""
    manifest_ns: int | None
    """When clients were first affected; None if they were not."""
    alarm_location: AlarmLocation | None = None
    """Location of the alarm, if the source states it; not stored in rows because no score uses it."""

    @property
    def faulty(self) -> bool:
        """Return whether a fault was injected."""
        return self.fault is not None

    @property
    def title(self) -> str:
        """Fault and targets, or the kind of an episode without a fault."""
        if not self.faulty:
            return f"no fault ({self.no_fault_kind or 'plain'})"
        return f"{self.fault} on {', '.join(self.targets)}" if self.targets else str(self.fault)

    @property
    def labelled(self) -> bool:
        """Return whether the label says if there was a fault."""
        return self.no_fault_kind != UNLABELLED

    @property
    def cluster(self) -> tuple[str, ...]:
        """Return the key that groups repetitions of one problem; see `get_cluster_key`."""
        return get_cluster_key(self.episode, self.app, self.fault, self.targets)

    @property
    def problems(self) -> tuple[tuple[str, ...], ...]:
        """Return (application, fault, target) of every fault; the cluster if the label does not describe each fault."""
        if self.faults:
            return list_problems(self.app, [(fault.fault, fault.target) for fault in self.faults])
        return () if self.fault is None else (self.cluster,)

    @property
    def diagnoses(self) -> frozenset[tuple[str, str]]:
        """Return the correct pairs (system level, fault type); empty if any is unknown."""
        pairs = [(fault.system_level, fault.fault_type) for fault in self.faults]
        pairs = pairs or [(self.system_level, self.fault_type)]
        complete = frozenset((level, kind) for level, kind in pairs if level and kind)
        return complete if len(complete) == len(set(pairs)) else frozenset()


def build_truth(label: Label, context: EpisodeContext) -> Truth:
    """Build the truth from an episode's label and context.

    The onset is the start of the injection. The correct answers for a root cause are its service and its accepted
    names, if they are candidates. A fault without a correct answer is not scored for localization. A cause of kind Pod
    with the name of its service means an unknown pod of that service.
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
        causes=tuple(dict.fromkeys(_list_accepted(causes, candidates))),
        candidates=candidates,
        pod_causes=tuple(dict.fromkeys(cause.name for cause in causes if _names_a_pod(cause))),
        metric_causes=tuple(dict.fromkeys((cause.service, cause.metric) for cause in causes if cause.metric)),
        calls=tuple(context.calls),
        system_level=label.system_level,
        fault_type=label.fault_type,
        faults=tuple(
            FaultTruth(fault.fault, fault.target, fault.system_level, fault.fault_type)
            for fault in label.faults
            if len(label.faults) > 1
        ),
        pauses=tuple(_list_pauses(label)),
        verdict=_get_verdict(label, context),
        profile=label.profile,
        view_start_ns=context.view_start_ns,
        view_end_ns=context.view_end_ns,
        reference_end_ns=context.reference_end_ns,
        onset_ns=label.onset_ns,
        manifest_ns=label.first_manifest_ns if fault is not None else None,
        alarm_location=label.alarm_location,
    )


def _list_pauses(label: Label) -> Iterator[tuple[int, int]]:
    """Yield the intervals between the onset and the end of the view without an active fault."""
    if label.inject_start_ns is None or not label.faults or not all(fault.intervals for fault in label.faults):
        return
    times = sorted((interval.begin_ns, interval.end_ns) for fault in label.faults for interval in fault.intervals)
    active_until_ns = times[0][0]
    for begin_ns, end_ns in [*times, (label.view_end_ns, label.view_end_ns)]:
        if active_until_ns < min(begin_ns, label.view_end_ns):
            yield active_until_ns, min(begin_ns, label.view_end_ns)
        active_until_ns = max(active_until_ns, end_ns)


def _get_verdict(label: Label, context: EpisodeContext) -> str:
    """Return the verdict; in collected episodes, "unknown" means that clients noticed nothing."""
    return UNNOTICED if label.verdict == "unknown" and context.platform != IMPORTED else label.verdict


def _names_a_pod(cause: RootCause) -> bool:
    return cause.kind == "Pod" and bool(cause.name) and cause.name != cause.service


def _list_accepted(causes: Iterable[RootCause], candidates: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    for cause in causes:
        accepted = [cause.service, *sorted(cause.accepted)]
        names = tuple(dict.fromkeys(name for name in accepted if name in candidates))
        if names:
            yield names


Loudness = Literal["all", "gray", "loud"]
"""Faults that a table is about."""

GRAY_FAULTS = frozenset(
    """
    ad-failure ad-high-cpu ad-manual-gc bandwidth-limit cart-failure connection-reset cpu-hog cpu-throttle
    heavy-query http-abort image-slow-load locked-store network-delay network-jitter network-loss payment-failure
    payment-unreachable product-catalog-failure slow-answers slow-store
    """.split()
)

LOUD_FAULTS = frozenset(
    """
    auth-missing buggy-image connection-limit connection-pool-exhausted consumer-stopped container-kill
    failing-build failing-readiness-probe flood-homepage invalid-security-context invalid-toleration
    kafka-queue-problems killing-liveness-probe memory-leak memory-limit missing-image missing-service
    network-partition nonexistent-node nonexistent-storage-class one-bad-replica overload-replicas pod-failure
    pod-kill poison-message read-only-account recommendation-cache-failure redeploy-without-pv retry-storm
    revoke-auth scale-to-zero short-timeout slow-build store-memory-limit target-port unknown-update-strategy
    user-unregistered volume-full wrong-binary wrong-config-key wrong-environment wrong-host wrong-operator-image
    wrong-secret wrong-selector
    """.split()
)


def classify_loudness(truth: Truth) -> Loudness | None:
    """Return whether the faults of an episode are gray or loud; None for unknown faults.

    An episode with several faults is loud if one of them is.
    """
    names = {fault.fault for fault in truth.faults} or {truth.fault}
    if not names <= GRAY_FAULTS | LOUD_FAULTS:
        return None
    return "gray" if names <= GRAY_FAULTS else "loud"
