"""Abnormal traces, and changes in the events and durations within requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from faultset.baselines.features.events import (
    LOG,
    RETURN,
    Clients,
    Events,
    build_code_events,
    find_client_spans,
    read_log_events,
    read_own_events,
)
from faultset.baselines.features.spans import SD_FLOOR, Flags, Ints, Spans, find_only_pods, read_spans
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView

HEALTHY_ERROR_LIMIT = 0.1


@dataclass(frozen=True, kw_only=True)
class TraceHealth:
    """[traces] whether each trace is in the healthy time, in the test window, and abnormal."""

    healthy: Flags
    in_test_window: Flags
    abnormal: Flags
    """Whether the trace is in the test window and took longer than its operations explain or has an unusual error."""


def find_trace_starts(spans: Spans) -> Ints:
    """Return the start [traces] of the first span of each trace."""
    began = np.full(spans.traces, np.iinfo(np.int64).max)
    np.minimum.at(began, spans.trace, spans.start_ns)
    return began


def classify_traces(spans: Spans, healthy_end_ns: int, start_ns: int, *, sigmas: float = 1.5) -> TraceHealth:
    """Classify traces as healthy, in the test window, and abnormal.

    A trace is too long if its duration exceeds the sum of mean + `sigmas` sd over its operations. Mean and sd are
    computed from the exclusive times of spans that ended before `healthy_end_ns`. Operations without such spans do not
    count against a trace. The test window begins at `start_ns`. A trace in it is abnormal if it is too long, or if it
    has an error that less than 10 % of the healthy spans of the same operation have.
    """
    count = spans.traces
    began = find_trace_starts(spans)
    ended = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(ended, spans.trace, spans.end_ns)
    is_healthy = spans.end_ns < healthy_end_ns
    group = distinct(spans.service * len(spans.operations) + spans.operation).code
    own_ns = spans.own_ns
    limit = span_limits(group, own_ns, is_healthy, sigmas=sigmas)
    allowed_ns = np.bincount(spans.trace, weights=np.where(np.isfinite(limit), limit, own_ns), minlength=count)
    # Gaps between the recorded spans, for instance of lost spans, do not count against a trace.
    duration_ns = np.minimum(ended - began, np.bincount(spans.trace, weights=own_ns, minlength=count))
    abnormal_error = spans.error & (healthy_share(group, spans.error, is_healthy) < HEALTHY_ERROR_LIMIT)
    failed = np.bincount(spans.trace, weights=abnormal_error, minlength=count) > 0
    in_test_window = began >= start_ns
    return TraceHealth(
        healthy=ended < healthy_end_ns,
        in_test_window=in_test_window,
        abnormal=in_test_window & (failed | (duration_ns > allowed_ns)),
    )


def classify_traces_at_alarm(episode: EpisodeView, alarm_ns: int, *, before: int, sigmas: float) -> TraceHealth:
    """Classify the traces of an episode; the test window begins `before` steps before the alarm."""
    start_ns = alarm_ns - round(before * episode.context.resolution_s * SECOND_NS)
    healthy_end_ns = min(episode.reference[1], alarm_ns)
    spans = read_spans(episode)
    health: TraceHealth = episode.once(
        ("trace health", healthy_end_ns, start_ns, sigmas),
        lambda: classify_traces(spans, healthy_end_ns, start_ns, sigmas=sigmas),
    )
    return health


def span_limits(groups: Ints, durations: Matrix, healthy_rows: Flags, *, sigmas: float) -> Matrix:
    """Return mean + `sigmas` sd over the healthy rows of each row's group; infinite without healthy rows."""
    size = int(groups.max()) + 1 if len(groups) else 0
    healthy_groups = groups[healthy_rows]
    count = np.bincount(healthy_groups, minlength=size)
    mean = np.bincount(healthy_groups, weights=durations[healthy_rows], minlength=size) / np.maximum(count, 1)
    squares = np.bincount(healthy_groups, weights=(durations[healthy_rows] - mean[healthy_groups]) ** 2, minlength=size)
    sd = np.maximum(np.sqrt(squares / np.maximum(count - 1, 1)), SD_FLOOR * mean)
    return np.where(count > 0, mean + sigmas * sd, np.inf)[groups]


def healthy_share(groups: Ints, flags: Flags, healthy_rows: Flags) -> Matrix:
    """Return the share of flagged rows among the healthy rows of each row's group; 0 without healthy rows."""
    size = int(groups.max()) + 1 if len(groups) else 0
    count = np.bincount(groups[healthy_rows], minlength=size)
    hits = np.bincount(groups[healthy_rows], weights=flags[healthy_rows], minlength=size)
    return (hits / np.maximum(count, 1))[groups]


MIN_SUPPORT = 5
SIMILARITY = 0.05
MIN_G = 6.63
"""99 % quantile of chi-square with one degree of freedom."""


@dataclass(frozen=True, kw_only=True)
class Observations:
    """[n] observations of one kind: a source (event or service) and its outcome, the target."""

    source: Ints
    target: Ints
    blamed: Ints
    """Index of the service that a change is evidence against."""
    pod: Ints
    """Index of its pod, or -1 if unknown."""
    trace: Ints
    began_ns: Ints
    known_ns: Ints
    """When the target was observable."""
    certainty: Matrix
    """Between 0 and 1; lower if another service may have caused the change."""


@dataclass(frozen=True, kw_only=True)
class PatternComparison:
    """[p] patterns of one kind of observation, compared before and after the alarm."""

    code: Ints
    """[n] pattern of each observation."""
    example: Ints
    """Row of an observation of the pattern."""
    expected_row: Ints
    """Row of an observation of the most frequent target of the same source in the healthy time."""
    g: Matrix
    """Evidence that the pattern's share increased: twice the log-likelihood ratio."""
    surprise: Matrix
    """Logarithm of the increase in the pattern's share; 0 without a significant increase."""
    counts: Matrix
    """[p, 4] counts of pattern and source in the healthy time, then since the alarm."""


def g_statistic(hits: Matrix, total: Matrix, other_hits: Matrix, other_total: Matrix) -> Matrix:
    """Return twice the log-likelihood ratio of two shares versus a common share.

    >>> g_statistic(np.array([0.0]), np.array([6.0]), np.array([9.0]), np.array([9.0])).round(2).tolist()
    [20.19]
    """
    all_hits, all_total = hits + other_hits, total + other_total
    cells = sum(map(_x_log_x, (hits, other_hits, total - hits, other_total - other_hits, all_total)))
    margins = sum(map(_x_log_x, (total, other_total, all_hits, all_total - all_hits)))
    return np.maximum(0.0, 2.0 * (cells - margins))


def _x_log_x(values: Matrix) -> Matrix:
    return np.where(values > 0, values * np.log(np.maximum(values, 1e-12)), 0.0)


def count_effective(counts: Matrix, similarity: float) -> Matrix:
    """Return the effective number of independent observations among similar ones.

    Requests within a minute are not independent, and a busy source would outweigh all others. With a similarity of 0.05
    a source counts as at most 20 observations.
    """
    return counts / (1.0 + np.maximum(counts - 1.0, 0.0) * similarity)


def compare_patterns(
    observations: Observations,
    healthy: Flags,
    windows: Sequence[Flags],
    *,
    min_support: int = MIN_SUPPORT,
    similarity: float = SIMILARITY,
    min_g: float = MIN_G,
) -> PatternComparison:
    """Compare the targets of each source in the healthy time and since the alarm.

    Parameters
    ----------
    healthy
        [n] which observations are healthy.
    windows
        [n] flags of each window since the alarm. The window with the largest change counts, so that late faults stand
        out.
    min_support
        Sources with fewer healthy observations are skipped.
    """
    source = distinct(observations.source).code
    width = int(observations.target.max(initial=0)) + 1
    _, example, code = distinct(source * width + observations.target)
    source_of_pattern = source[example]
    healthy_counts, healthy_totals = _count_by_source(code, source, healthy, source_of_pattern)
    most_frequent = np.zeros(int(source_of_pattern.max(initial=0)) + 1, dtype=np.int64)
    order = np.argsort(healthy_counts, kind="stable")
    most_frequent[source_of_pattern[order]] = order
    healthy_factor = count_effective(healthy_totals, similarity) / np.maximum(healthy_totals, 1.0)
    best, surprise = np.zeros(len(example)), np.zeros(len(example))
    counts = np.zeros((len(example), 4))
    for window in windows:
        recent_counts, recent_totals = _count_by_source(code, source, window, source_of_pattern)
        recent_factor = count_effective(recent_totals, similarity) / np.maximum(recent_totals, 1.0)
        cells = (
            healthy_counts * healthy_factor,
            healthy_totals * healthy_factor,
            recent_counts * recent_factor,
            recent_totals * recent_factor,
        )
        g = np.where((healthy_totals >= min_support) & (recent_totals > 0), g_statistic(*cells), 0.0)
        rise = np.log((cells[2] + 0.5) / (cells[3] + 1.0)) - np.log((cells[0] + 0.5) / (cells[1] + 1.0))
        better = (g > best) & (rise > 0)
        best = np.where(better, g, best)
        surprise = np.where(better & (g > min_g), rise, surprise)
        counts[better] = np.stack([healthy_counts, healthy_totals, recent_counts, recent_totals], axis=1)[better]
    return PatternComparison(
        code=code,
        example=example,
        expected_row=example[most_frequent[source_of_pattern]],
        g=best,
        surprise=surprise,
        counts=counts,
    )


def _count_by_source(code: Ints, source: Ints, chosen: Flags, source_of_pattern: Ints) -> tuple[Matrix, Matrix]:
    patterns = np.bincount(code[chosen], minlength=len(source_of_pattern)).astype(float)
    sources = np.bincount(source[chosen], minlength=int(source_of_pattern.max(initial=0)) + 1).astype(float)
    return patterns, sources[source_of_pattern]


def select_first_surprises(surprise: Matrix, trace: Ints, known_ns: Ints, share: float = 0.5) -> Flags:
    """Return which surprises have no earlier surprise in their trace that is at least `share` times as large.

    Events after a surprise in the same request may be its consequence.

    >>> select_first_surprises(np.array([0.0, 2.0, 3.0, 3.0]), np.array([0, 0, 0, 1]), np.array([1, 2, 3, 9])).tolist()
    [False, True, False, True]
    """
    is_first = np.zeros(len(surprise), dtype=bool)
    rows = np.flatnonzero(surprise > 0)
    if not len(rows):
        return is_first
    rows = rows[np.lexsort([rows, known_ns[rows], trace[rows]])]
    family = np.cumsum(np.diff(trace[rows], prepend=trace[rows[0]]) != 0)
    # Offsets separate the traces, so that one running maximum handles all of them.
    height = float(surprise.max()) + 1.0
    greatest = np.maximum.accumulate(surprise[rows] + family * height)
    before = np.concatenate([[0.0], greatest[:-1]]) - family * height
    is_first[rows] = before < share * surprise[rows]
    return is_first


SLOW_FACTOR = 3.0
SLOW_QUANTILE = 0.9
MIN_SLOW_NS = 2_000_000
AFTER_RESPONSE = 0.5


@dataclass(frozen=True, kw_only=True)
class ObservationKind:
    """Observations of one kind, with a function that describes a row."""

    observations: Observations
    text: Callable[[int, int], str]
    """(row, row of the usual observation) -> description."""
    is_chained: bool = True
    """Whether earlier changes can explain later ones; false for exclusive times."""


def observe_requests(spans: Spans, episode: EpisodeView, healthy_end_ns: int) -> list[ObservationKind]:
    """Return observations of an episode's requests: which event follows which, and slow spans."""
    return episode.once(
        ("requests observed", healthy_end_ns), lambda: _observe_requests(spans, episode, healthy_end_ns)
    )


def _observe_requests(spans: Spans, episode: EpisodeView, healthy_end_ns: int) -> list[ObservationKind]:
    logs = read_log_events(episode, spans)
    clients = find_client_spans(spans, logs)
    lines, calls = read_own_events(episode, spans), build_code_events(spans, logs, clients)
    return [
        _observe_successions(spans, lines, np.flatnonzero(~clients.is_client[lines.span])),
        _observe_successions(spans, calls, np.flatnonzero(calls.kind != LOG)),
        *_observe_slow_spans(spans, clients, healthy_end_ns),
    ]


def _observe_successions(spans: Spans, events: Events, rows: Ints) -> ObservationKind:
    """Observe the next event after each event of a span, separately per operation of the parent span."""
    source, target = rows[:-1], rows[1:]
    is_same_span = events.span[source] == events.span[target]
    is_same_span &= spans.service[events.span[source]] >= 0
    source, target = source[is_same_span], target[is_same_span]
    span = events.span[source]
    owner = spans.service[span]
    parent = spans.parent[span]
    caller = np.where(parent >= 0, spans.operation[parent], -1) + 1
    key = events.key
    context = distinct(owner * (len(spans.operations) + 1) + caller).code
    is_failed_response = (events.kind[target] == RETURN) & events.failed[target] & (events.service[target] >= 0)
    # The next event after a response depends on the response.
    follows_response = (events.kind[source] == RETURN) & (events.service[source] != owner)
    # Consecutive codes keep the product below from overflowing.
    kinds = distinct(key).code
    observations = Observations(
        source=context * (int(kinds.max(initial=0)) + 1) + kinds[source],
        target=kinds[target],
        blamed=np.where(is_failed_response, events.service[target], owner),
        pod=np.where(is_failed_response, find_only_pods(spans)[events.service[target]], spans.pod[span]),
        trace=spans.trace[span],
        began_ns=events.time_ns[source],
        known_ns=events.time_ns[target],
        certainty=np.where(follows_response, AFTER_RESPONSE, 1.0),
    )

    def text(row: int, expected_row: int) -> str:
        expected = "" if expected_row == row else f", usually {events.text(int(target[expected_row]))}"
        return f"{events.text(int(source[row]))} -> {events.text(int(target[row]))}{expected}"

    return ObservationKind(observations=observations, text=text)


def _observe_slow_spans(spans: Spans, clients: Clients, healthy_end_ns: int) -> list[ObservationKind]:
    """Observe slow code, and slow calls as evidence against the callee and against the caller."""
    own_ns = spans.own_ns
    code = np.flatnonzero(~clients.is_client & (spans.service >= 0))
    calls = np.flatnonzero(clients.is_client & (clients.called >= 0) & (spans.service >= 0))
    rows = np.where(clients.answer[calls] >= 0, clients.answer[calls], calls)
    answered_ns = np.where(clients.answer[calls] >= 0, spans.duration_ns[rows], 0)
    spent = (spans.duration_ns[calls] - answered_ns).astype(float)
    called = np.where(clients.answer[calls] >= 0, spans.pod[rows], find_only_pods(spans)[clients.called[calls]])
    group = (spans.service[calls] * len(spans.names) + clients.called[calls]) * len(spans.operations)
    group = group + spans.operation[rows]
    return [
        _observe_slowness(
            spans,
            code,
            own_ns[code],
            spans.service[code] * len(spans.operations) + spans.operation[code],
            spans.service[code],
            spans.pod[code],
            healthy_end_ns,
            "slow code",
        ),
        _observe_slowness(
            spans, calls, spent, group, clients.called[calls], called, healthy_end_ns, "slow call to the service"
        ),
        _observe_slowness(
            spans,
            calls,
            spent,
            group,
            spans.service[calls],
            spans.pod[calls],
            healthy_end_ns,
            "slow response of the service",
        ),
    ]


def _observe_slowness(
    spans: Spans, rows: Ints, spent_ns: Matrix, group: Ints, service: Ints, pod: Ints, healthy_end_ns: int, label: str
) -> ObservationKind:
    is_healthy = spans.end_ns[rows] < healthy_end_ns
    slow = spent_ns > slow_limits(group, spent_ns, is_healthy)
    return ObservationKind(
        observations=Observations(
            source=service,
            target=slow.astype(np.int64),
            blamed=service,
            pod=pod,
            trace=spans.trace[rows],
            began_ns=spans.start_ns[rows],
            known_ns=spans.end_ns[rows],
            # Only slower spans are evidence; faster spans are not.
            certainty=slow.astype(float),
        ),
        text=lambda row, expected_row: label,
        is_chained=False,
    )


def slow_limits(group: Ints, spent_ns: Matrix, healthy_rows: Flags, *, min_rows: int = 3) -> Matrix:
    """Return three times the healthy 90 % quantile of each row's group, at least 2 ms.

    The limit is infinite for groups with fewer than `min_rows` healthy rows.
    """
    group = distinct(group).code
    size = int(group.max()) + 1 if len(group) else 0
    order = np.lexsort([spent_ns[healthy_rows], group[healthy_rows]])
    sorted_groups, spent = group[healthy_rows][order], spent_ns[healthy_rows][order]
    begin = np.searchsorted(sorted_groups, np.arange(size))
    count = np.bincount(sorted_groups, minlength=size)
    limit = np.full(size, np.inf)
    groups = np.flatnonzero(count >= min_rows)
    row = begin[groups] + np.ceil(SLOW_QUANTILE * count[groups]).astype(int) - 1
    limit[groups] = np.maximum(SLOW_FACTOR * spent[row], MIN_SLOW_NS)
    return limit[group]
