"""Rules on spans: slow operations, failing services and missing calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, TrainingFreeBaseline, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN, OWN_CAMPAIGNS_ALL_APPS
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
from faultset.baselines.stats.scaling import LEVEL, Matrix, distinct, reference_limit
from faultset.baselines.traces.spans import EndedSpans, read_calls, read_ended_spans
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

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
    times = steps.times_ns
    scores = shares.max(axis=1, initial=0.0)
    alarm = first_alarm(times, scores > limit)
    evidence: tuple[Evidence, ...] = ()
    if alarm is not None:
        row = shares[int(np.searchsorted(times, alarm))].tolist()
        reported = sorted((-score, *subject) for score, subject in zip(row, subjects, strict=True) if score > 0)[
            :_MAX_EVIDENCE
        ]
        evidence = tuple(
            Evidence(service=service, subject=subject, score=-score, detail=detail)
            for score, service, subject in reported
        )
    return Detection.from_scores(times, scores, limit, evidence=evidence)


@baseline(
    "trace-p95",
    title="Trace P95 rule",
    task="detection",
    paper="Textbook rule on latency percentiles",
    kind="rule",
    developed_on=OWN,
    tables=("spans",),
    speed="instant",
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


@baseline(
    "missing-edge",
    title="Missing edge rule",
    task="detection",
    paper="Textbook rule on call graphs",
    kind="rule",
    developed_on=OWN,
    tables=("spans",),
    speed="instant",
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


@baseline(
    "trace-errors",
    title="Trace error rule",
    task="detection",
    paper="Textbook rule on shares; binomial tails",
    kind="rule",
    developed_on=(*OWN, OWN_CAMPAIGNS_ALL_APPS),
    tables=("spans",),
    speed="instant",
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
