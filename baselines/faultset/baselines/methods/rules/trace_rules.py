"""Rules on spans: slow operations, failing services and missing calls."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from faultset.baselines.contract import Detection, Evidence, TrainingFreeBaseline
from faultset.baselines.features.held_out import MIN_SAMPLES, divide_by_limits
from faultset.baselines.features.role_streams import (
    Ints,
    Steps,
    count_silent_steps,
    excess_surprise,
    idle_share,
    read_steps,
    span_of_recent,
    sum_recent,
)
from faultset.baselines.features.spans import Flags, Spans, read_spans
from faultset.baselines.registry import OWN, OWN_CAMPAIGNS_ALL_APPS, detector
from faultset.baselines.stats.scaling import LEVEL, Matrix, distinct, reference_limit
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView


@dataclass(frozen=True, kw_only=True)
class EndedSpans:
    """[n] spans of candidate services."""

    ends_ns: Ints
    """A span can be observed when it ends."""
    durations_ns: Ints
    services: Ints
    """Index into the sorted candidates."""
    operations: Ints
    """Index into `names`."""
    names: tuple[tuple[str, str], ...]
    """(service, operation) of each kind of span."""
    failed: Flags


@dataclass(frozen=True, kw_only=True)
class Calls:
    """[m] calls between two candidates."""

    known_ns: Ints
    """When the call can be observed: at the end of the caller's span if it names its peer, otherwise of both spans."""
    edges: Ints
    """caller · number of candidates + callee."""


def read_ended_spans(episode: EpisodeView) -> EndedSpans:
    """Read an episode's spans with their operations."""
    return episode.once("ended spans", lambda: select_ended_spans(read_spans(episode)))


def read_calls(episode: EpisodeView) -> Calls:
    """Read the calls that an episode's spans show."""
    return episode.once("calls", lambda: find_calls(read_spans(episode)))


def select_ended_spans(spans: Spans) -> EndedSpans:
    """Return the spans of candidates with encoded operations."""
    rows = np.flatnonzero(spans.service >= 0)
    width = max(1, len(spans.operations))
    kinds, _, operation = distinct(spans.service[rows] * width + spans.operation[rows])
    return EndedSpans(
        ends_ns=spans.end_ns[rows],
        durations_ns=spans.duration_ns[rows],
        services=spans.service[rows],
        operations=operation,
        names=tuple((spans.names[kind // width], spans.operations[kind % width]) for kind in kinds.tolist()),
        failed=spans.error[rows],
    )


def find_calls(spans: Spans) -> Calls:
    """Return the calls between services.

    A span is a call if it names a peer, or if its parent is in another service and does not name the span's service.
    """
    if not len(spans):
        return Calls(known_ns=np.zeros(0, dtype=np.int64), edges=np.zeros(0, dtype=np.int64))
    has_parent = spans.parent >= 0
    parent_service = np.where(has_parent, spans.service[spans.parent], -1)
    parent_peer = np.where(has_parent, spans.peer[spans.parent], -1)
    names_peer = (spans.service >= 0) & (spans.peer >= 0) & (spans.peer != spans.service)
    is_nested_call = (
        ~names_peer
        & (spans.service >= 0)
        & (parent_service >= 0)
        & (parent_service != spans.service)
        & (parent_peer != spans.service)
    )
    ends = spans.end_ns
    known_ns = np.where(is_nested_call, np.maximum(ends, ends[spans.parent]), ends)
    caller = np.where(names_peer, spans.service, parent_service)
    callee = np.where(names_peer, spans.peer, spans.service)
    rows = np.flatnonzero(names_peer | is_nested_call)
    return Calls(known_ns=known_ns[rows], edges=caller[rows] * len(spans.names) + callee[rows])


SLOWER = 3.0
SHARE = 0.95
MIN_SPANS = 20
CLASS_WIDTH = float(np.log(1.1))
MAX_CLASS = 60
"""Log ratios of durations are counted in classes from -60 to 60 of width `CLASS_WIDTH`."""
EXPECTED_CALLS = 5.0
ERROR_STEPS = 10
BURST_S = 3.0
_MAX_EVIDENCE = 5


def high_percentiles(durations: Ints, kinds: Ints, count: int, *, share: float = SHARE) -> Matrix:
    """Return the `share` quantile of the durations of each kind; NaN for kinds without durations.

    The quantile is the smallest duration with at least `share` of the durations at or below it.

    >>> high_percentiles(np.arange(1, 101), np.zeros(100, dtype=int), 2)
    array([95., nan])
    """
    order = np.lexsort([durations, kinds])
    counts = np.bincount(kinds, minlength=count)
    last = np.cumsum(counts) - counts + np.ceil(share * counts).astype(np.int64) - 1
    percentiles = np.full(count, np.nan)
    percentiles[counts > 0] = durations[order[last[counts > 0]]]
    return percentiles


def recent_percentiles(steps: Steps, spans: EndedSpans, reference: Matrix, *, share: float = SHARE) -> Matrix:
    """Return the log ratio of each operation's recent percentile to the usual one after each step.

    It uses the spans of the step, and of earlier steps until there are 20 spans. Durations are binned in classes of
    10 %, so the ratio is accurate to 5 %.

    Returns
    -------
    ndarray
        [steps, operations]; 0 for fewer than 20 spans.
    """
    kinds = len(spans.names)
    ratio = np.log(np.maximum(spans.durations_ns, 1)) - np.log(np.maximum(reference, 1.0))[spans.operations]
    classes = 2 * MAX_CLASS + 1
    ratio_class = (
        np.clip(np.round(np.nan_to_num(ratio) / CLASS_WIDTH), -MAX_CLASS, MAX_CLASS).astype(np.int64) + MAX_CLASS
    )
    keys = np.where(np.isfinite(ratio), spans.operations * classes + ratio_class, -1)
    counts = steps.counts(spans.ends_ns, keys, kinds * classes).reshape(steps.count, kinds, classes)
    cumulative = np.cumsum(counts, axis=0, dtype=np.int32)
    total = cumulative.sum(axis=2)
    change = np.zeros((steps.count, kinds))
    for kind in range(kinds):
        rows = np.flatnonzero(total[:, kind] >= MIN_SPANS)
        # Last step before the steps with the 20 most recent spans.
        previous = np.searchsorted(total[:, kind], total[rows, kind] - MIN_SPANS, side="right") - 1
        previous = np.minimum(previous, rows - 1)
        earlier = np.where(previous[:, None] >= 0, cumulative[previous, kind], 0)
        recent = np.cumsum(cumulative[rows, kind] - earlier, axis=1)
        change[rows, kind] = (recent < share * recent[:, -1:]).sum(axis=1) - MAX_CLASS
    return change * CLASS_WIDTH


def _build_detection(
    steps: Steps, shares: Matrix, limit: float, subjects: list[tuple[str, str]], detail: str
) -> Detection:
    """Return a detection scored by the largest share of each step, with the largest shares at the alarm as evidence."""

    def explain(row: int) -> list[Evidence]:
        pairs = zip(shares[row].tolist(), subjects, strict=True)
        return [
            Evidence(service=service, subject=subject, score=-score, detail=detail)
            for score, service, subject in sorted((-score, *subject) for score, subject in pairs if score > 0)
        ][:_MAX_EVIDENCE]

    return Detection.from_scores(steps.times_ns, shares.max(axis=1, initial=0.0), limit, evidence=explain)


@detector(
    "trace-p95",
    title="Trace P95 rule",
    paper="Textbook rule on latency percentiles",
    kind="rule",
    tables=("spans",),
    complexity="O(N·log N)",
    departures=(
        "Two-sided: an operation that becomes three times faster is reported too.",
        "The limit of an operation is at least its largest change in the reference.",
        "A percentile uses the spans of a step, or the last 20 spans if the step has fewer.",
    ),
)
class TraceP95Detector(TrainingFreeBaseline):
    """Detect when the 95th percentile of an operation's durations triples or falls to a third.

    Parameters
    ----------
    slower
        Ratio of percentiles that is reported.

    References
    ----------
    Beyer et al., Site Reliability Engineering, 2016, for percentiles; the rule is common practice.
    """

    def __init__(self, *, slower: float = SLOWER) -> None:
        self.slower = slower

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every step after the reference by its most changed operation; 1 is the limit."""
        spans, steps = read_ended_spans(episode), read_steps(episode)
        step = steps.of(spans.ends_ns)
        healthy = (step >= 0) & (step < steps.healthy)
        if steps.healthy < MIN_SAMPLES or not healthy.any():
            return Detection.silent(1.0)
        reference = high_percentiles(spans.durations_ns[healthy], spans.operations[healthy], len(spans.names))
        change = np.abs(recent_percentiles(steps, spans, reference))
        shares, limit = divide_by_limits(change[: steps.healthy], change[steps.healthy :], float(np.log(self.slower)))
        detail = "change of the 95th percentile, 1 is the operation's limit"
        return _build_detection(steps, shares, limit, list(spans.names), detail)


@detector(
    "missing-edge",
    title="Missing edge rule",
    paper="Textbook rule on call graphs",
    kind="rule",
    tables=("spans",),
    complexity="O(N + edges·T)",
    departures=(
        "The probability of a silence follows from the share of steps without calls, because calls come in bursts.",
        "A silence is reported if it is as unlikely as no call out of five expected ones (e to the -5); the limit is "
        "stricter with many edges.",
        "The limit of an edge is at least its longest silence in the reference.",
    ),
)
class MissingEdgeDetector(TrainingFreeBaseline):
    """Detect when a service stops calling another service.

    Parameters
    ----------
    expected
        A silence is reported if it is as improbable as no call where this many calls are expected.

    References
    ----------
    None; the rule is common practice.
    """

    def __init__(self, *, expected: float = EXPECTED_CALLS) -> None:
        self.expected = expected

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every step after the reference by its most overdue edge; 1 is the limit."""
        calls, steps = read_calls(episode), read_steps(episode)
        names = sorted(episode.services)
        step = steps.of(calls.known_ns)
        edges = distinct(calls.edges[(step >= 0) & (step < steps.healthy)]).values
        if steps.healthy < MIN_SAMPLES or not len(edges):
            return Detection.silent(1.0)
        position = np.searchsorted(edges, calls.edges).clip(0, len(edges) - 1)
        column = np.where(edges[position] == calls.edges, position, -1)
        counts = steps.counts(calls.known_ns, column, len(edges))
        # Calls come in bursts, so the unit is a step without calls, not a missing call.
        overdue = count_silent_steps(counts).astype(float) * -np.log(idle_share(counts[: steps.healthy]))
        minimum = max(self.expected, float(np.log(len(edges) / LEVEL)))
        shares, limit = divide_by_limits(overdue[: steps.healthy], overdue[steps.healthy :], minimum)
        subjects = [(names[pair // len(names)], f"calls to {names[pair % len(names)]}") for pair in edges.tolist()]
        return _build_detection(steps, shares, limit, subjects, "silence, 1 is the edge's limit")


@detector(
    "trace-errors",
    title="Trace error rule",
    paper="Textbook rule on shares; binomial tails",
    kind="rule",
    developed_on=(*OWN, OWN_CAMPAIGNS_ALL_APPS),
    tables=("spans",),
    complexity="O(N + services·T)",
    departures=(
        "Shares are computed over the last ten steps.",
        "Failures within three seconds or in neighbouring steps are ignored, because a restart also causes them.",
    ),
)
class TraceErrorsDetector(TrainingFreeBaseline):
    """Detect when a service's share of failed spans is too high to be chance, given its healthy share.

    The rule is one-sided: fewer failures are not reported.

    Parameters
    ----------
    burst_s
        Longest burst of failures, in seconds, that is not reported.

    References
    ----------
    None; the rule is common practice.
    """

    def __init__(self, *, burst_s: float = BURST_S) -> None:
        self.burst_s = burst_s

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every step after the reference by its least likely service: -log10 of the tail probability."""
        spans, steps = read_ended_spans(episode), read_steps(episode)
        names = sorted(episode.services)
        counts = steps.counts(spans.ends_ns, spans.services, len(names))
        failed = steps.counts(spans.ends_ns[spans.failed], spans.services[spans.failed], len(names))
        total = counts[: steps.healthy].sum(axis=0)
        if steps.healthy < MIN_SAMPLES or not total.any():
            return Detection.silent()
        healthy_rate = (failed[: steps.healthy].sum(axis=0) + 0.5) / (total + 1.0)
        surprise = excess_surprise(sum_recent(failed, ERROR_STEPS), sum_recent(counts, ERROR_STEPS), healthy_rate)
        surprise[:, total == 0] = 0.0
        longest_burst = max(2, math.ceil(self.burst_s * SECOND_NS / steps.step_ns))
        surprise[span_of_recent(failed, ERROR_STEPS) < longest_burst] = 0.0
        worst = surprise.max(axis=1)
        limit = reference_limit(worst[ERROR_STEPS - 1 : steps.healthy], minimum=float(np.log10(len(names) / LEVEL)))
        detail = "-log10 of the probability of this failure share"
        subjects = [(name, "failed spans") for name in names]
        return _build_detection(steps, surprise[steps.healthy :], limit, subjects, detail)
