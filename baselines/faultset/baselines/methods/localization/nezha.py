"""Nezha: event patterns that occur in the healthy time and have been missing since the alarm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.abnormal_traces import (
    MIN_G,
    MIN_SUPPORT,
    SIMILARITY,
    ObservationKind,
    Observations,
    PatternComparison,
    compare_patterns,
    count_effective,
    find_trace_starts,
    g_statistic,
    observe_requests,
    select_first_surprises,
)
from faultset.baselines.features.events import BEGIN, Events, read_own_events
from faultset.baselines.features.metric_alarms import MetricAlarm, find_metric_alarms
from faultset.baselines.features.spans import Flags, Ints, Spans, read_spans
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.datasets.views import EpisodeView

PAPER = "Yu, Chen, Li, Wu, Zhang, Nezha, FSE 2023"
_MAX_DEPTH = 64


@dataclass(frozen=True, kw_only=True)
class Edges:
    """[m] direct links between events in the graph of a trace."""

    source: Ints
    """Row of an event."""
    target: Ints


def link_events(spans: Spans, events: Events) -> Edges:
    """Link consecutive events of a span, and the start event of a span with its cause.

    If both spans belong to one service, the cause is the last event of the parent before the span started. Otherwise it
    is the start event of the parent.
    """
    follows = np.flatnonzero(events.span[:-1] == events.span[1:])
    begins = np.flatnonzero(events.kind == BEGIN)
    begin_of = np.full(len(spans), -1)
    begin_of[events.span[begins]] = begins
    child = np.flatnonzero((spans.parent >= 0) & (begin_of >= 0))
    parent = spans.parent[child]
    # Events are sorted by span and time, so one search finds the last event before a time. Ranks of times avoid an
    # overflow.
    instants = np.unique(events.time_ns)
    width = len(instants) + 1
    position = events.span * width + np.searchsorted(instants, events.time_ns, side="right")
    begin = parent * width + np.searchsorted(instants, spans.start_ns[child], side="right")
    last_event = np.maximum(np.searchsorted(position, begin, side="right") - 1, begin_of[parent])
    is_same_service = spans.service[parent] == spans.service[child]
    source = np.where(is_same_service, last_event, begin_of[parent])
    return Edges(
        source=np.concatenate([follows, source]),
        target=np.concatenate([follows + 1, begin_of[child]]),
    )


def measure_depths_of_spans(spans: Spans) -> Ints:
    """Return the depth of each span in its trace."""
    depth = np.zeros(len(spans), dtype=np.int64)
    ancestor = spans.parent
    for _ in range(_MAX_DEPTH):
        has_parent = ancestor >= 0
        if not has_parent.any():
            break
        depth += has_parent
        ancestor = np.where(has_parent, spans.parent[ancestor], -1)
    return depth


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """[p] kinds of links between events, with their support."""

    source: Ints
    """Code of the link's first event."""
    target: Ints
    example: Ints
    """Row of `Edges` with the pattern."""
    service: Ints
    depth: Ints
    """Largest depth of the first event's span."""
    healthy: Matrix
    """Support in the healthy time."""
    recent: Matrix
    """Support since the alarm, scaled to the number of traces in the healthy time."""


@localizer(
    "nezha",
    title="Nezha",
    paper=PAPER,
    tables=("spans", "logs", "metrics"),
    requires=("spans",),
    reconstruction=True,
    complexity="O((N + L)·log(N + L) + P²), P lost patterns",
    departures=(
        "Supports are compared per trace, because the two windows have different numbers of requests.",
        "A log statement is identified by its location in the code, or by its Drain template if the line has none.",
        "Metric alarms are deviations of CPU and memory by 6 sigma, not fixed limits for two applications; network "
        "latency is left out.",
        "Services are ranked by their best pattern; the paper ranks patterns, and a hit must have the right events and "
        "service.",
        "Patterns with equal score and depth are tied; the published code counts a tie as the better rank.",
    ),
)
class Nezha(TrainingFreeBaseline):
    """Rank services by patterns of two linked events that became rare since the alarm.

    Parameters
    ----------
    min_support
        Patterns with at most this support in the healthy time are ignored.
    min_score
        Minimum of s / (s + s'), where s is a pattern's support in the healthy time and s' its support since the alarm.

    References
    ----------
    Yu et al., Nezha: interpretable fine-grained root causes analysis for microservices on multi-modal observability
    data, FSE 2023.
    """

    def __init__(self, *, min_support: int = 5, min_score: float = 0.67) -> None:
        self.min_support = min_support
        self.min_score = min_score

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their best lost pattern; depth breaks ties."""
        spans = read_spans(episode)
        if not len(spans):
            return Ranking.abstain()
        events = read_own_events(episode, spans)
        edges = link_events(spans, events)
        alarms = {alarm.service: alarm.metric for alarm in find_metric_alarms(episode, alarm_ns)}
        has_alarm = np.array([name in alarms for name in spans.names], dtype=bool)
        start_ns = find_trace_starts(spans)
        healthy_end_ns = min(episode.reference[1], alarm_ns)
        is_healthy, is_recent = start_ns < healthy_end_ns, start_ns >= alarm_ns
        if not is_healthy.any() or not is_recent.any():
            return Ranking.abstain()
        patterns = self._count_patterns(spans, events, edges, has_alarm, is_healthy, is_recent)
        total = patterns.healthy + patterns.recent
        score = np.divide(patterns.healthy, total, out=np.zeros_like(total), where=total > 0)
        selected = (patterns.healthy > self.min_support) & (score >= self.min_score) & (patterns.service >= 0)
        selected[selected] = ~follows_lost(patterns.source[selected], patterns.target[selected], score[selected])
        if not selected.any():
            return Ranking.abstain()
        weight = score + patterns.depth / (1000 * _MAX_DEPTH)
        scores: dict[str, float] = {}
        evidence: list[Evidence] = []
        for number in np.flatnonzero(selected)[np.argsort(-weight[selected], kind="stable")]:
            service = spans.names[patterns.service[number]]
            row = int(patterns.example[number])
            if len(evidence) < 10:
                evidence.append(
                    Evidence(
                        service=service,
                        subject=f"{events.text(int(edges.source[row]))} -> {events.text(int(edges.target[row]))}",
                        score=float(weight[number]),
                        detail=f"lost pattern{', alarm of ' + alarms[service] if service in alarms else ''}",
                    )
                )
            scores.setdefault(service, float(weight[number]))
        return Ranking.of(scores, episode.services, evidence)

    def _count_patterns(
        self, spans: Spans, events: Events, edges: Edges, has_alarm: Flags, is_healthy: Flags, is_recent: Flags
    ) -> Patterns:
        key = events.key
        source, target = key[edges.source], key[edges.target]
        _, number, code = distinct(source * (int(key.max()) + 1) + target)
        row_of = edges.source
        trace = spans.trace[events.span[row_of]]
        service = spans.service[events.span[row_of]]
        # An alarm is an event after the start of a span, so it breaks the link to the next event.
        is_cut = (events.kind[row_of] == BEGIN) & (service >= 0) & has_alarm[service] & is_recent[trace]
        healthy_counts = np.bincount(code[is_healthy[trace]], minlength=len(number)).astype(float)
        recent_counts = np.bincount(code[is_recent[trace] & ~is_cut], minlength=len(number)).astype(float)
        depth = np.zeros(len(number), dtype=np.int64)
        np.maximum.at(depth, code, measure_depths_of_spans(spans)[events.span[row_of]])
        return Patterns(
            source=source[number],
            target=target[number],
            example=number,
            service=service[number],
            depth=depth,
            healthy=healthy_counts,
            recent=recent_counts * (is_healthy.sum() / is_recent.sum()),
        )


def follows_lost(source: Ints, target: Ints, score: Matrix) -> Flags:
    """Return which lost patterns start with the last event of a pattern that was lost at least as much.

    >>> follows_lost(np.array([1, 2]), np.array([2, 3]), np.array([1.0, 1.0])).tolist()
    [False, True]
    """
    follows = (source[:, None] == target[None, :]) & (score[:, None] <= score[None, :])
    return np.asarray(follows.any(axis=1))


@dataclass(frozen=True, kw_only=True)
class _SelectedChanges:
    """The changes of one kind of observation that the ranking uses."""

    rows: Flags
    """[n] whether each observation counts."""
    share: Matrix
    """[p] share of each pattern's changes that count."""


@localizer(
    "nezha-patterns",
    title="Nezha with conditional patterns",
    paper=f"Variant of {PAPER}",
    kind="own",
    tables=("spans", "logs", "metrics"),
    complexity="O((N + L)·log(N + L) + S·T)",
    departures=(
        "Patterns are compared given their first event, so that a change of the load is not a change of patterns.",
        "New patterns count as well as lost ones, because a new pattern replaces each lost one.",
        "Log lines are linked with log lines and calls with calls, because logs and spans have different clocks.",
        "Evidence is a likelihood ratio on effective counts instead of a ratio of supports.",
        "Only changes without an earlier change in the same request count in full.",
        "A span with a long exclusive time, or a long wait for another service, is an event as well.",
    ),
)
class NezhaPatterns(TrainingFreeBaseline):
    """Rank services by changed patterns within requests, counting the first change of each request.

    Parameters
    ----------
    min_support
        Minimum number of occurrences of an event in the reference.
    similarity
        Assumed correlation of requests within a window. An event counts as at most 1 / `similarity` requests.
    min_g
        Minimum evidence of a pattern.
    share
        An earlier change explains a later one if its surprise is at least this share of the later one's.

    References
    ----------
    Yu et al., Nezha: interpretable fine-grained root causes analysis for microservices on multi-modal observability
    data, FSE 2023, for the events; the comparison is our own.
    """

    def __init__(
        self,
        *,
        min_support: int = MIN_SUPPORT,
        similarity: float = SIMILARITY,
        min_g: float = MIN_G,
        share: float = 0.5,
    ) -> None:
        self.min_support = min_support
        self.similarity = similarity
        self.min_g = min_g
        self.share = share

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        key = ("nezha-patterns", self.min_support, self.similarity, self.min_g, self.share, alarm_ns)
        return episode.once(key, lambda: self._rank(episode, alarm_ns))

    def _rank(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        spans = read_spans(episode)
        alarms = find_metric_alarms(episode, alarm_ns)
        healthy_end_ns = min(episode.reference[1], alarm_ns)
        kinds = observe_requests(spans, episode, healthy_end_ns) if len(spans) else []
        scores: dict[str, float] = defaultdict(float)
        pods: dict[tuple[str, str], float] = defaultdict(float)
        evidence: list[Evidence] = []
        for kind, patterns, selected in self._select_changes(kinds, healthy_end_ns, alarm_ns, episode.window[1]):
            certainty = kind.observations.certainty[patterns.example]
            weight = np.where(patterns.surprise > 0, patterns.g * selected.share * certainty, 0.0)
            for owner, score in _divide_by_pod(spans, kind.observations, patterns, selected.rows, weight).items():
                pods[owner] += score
            for number in np.flatnonzero(weight > 0):
                row = int(patterns.example[number])
                service = spans.names[kind.observations.blamed[row]]
                scores[service] += float(weight[number])
                healthy_count, healthy_total, recent_count, recent_total = (
                    int(count) for count in patterns.counts[number]
                )
                evidence.append(
                    Evidence(
                        service=service,
                        subject=kind.text(row, int(patterns.expected_row[number])),
                        score=float(weight[number]),
                        detail=f"{healthy_count} of {healthy_total} times in the reference, "
                        f"{recent_count} of {recent_total} since the alarm",
                    )
                )
        for alarm in alarms:
            alarm_weight = self._weigh_alarm(alarm, spans, healthy_end_ns, alarm_ns)
            scores[alarm.service] += alarm_weight
            is_own = spans.service == spans.names.index(alarm.service)
            pod_codes = np.unique(spans.pod[is_own & (spans.pod >= 0) & (spans.end_ns >= alarm_ns)]).tolist()
            for code in pod_codes:
                # The metric covers all pods of the service, so each gets an equal part.
                pods[alarm.service, spans.pods[code]] += alarm_weight / len(pod_codes)
            evidence.append(
                Evidence(
                    service=alarm.service, subject=alarm.metric, score=alarm_weight, detail=f"{alarm.z:.0f} sigmas away"
                )
            )
        evidence.sort(key=lambda item: (-item.score, item.service, item.subject))
        metrics = {(alarm.service, alarm.metric): alarm.z for alarm in alarms}
        return Ranking.of(scores, episode.services, evidence[:10], metrics, pods)

    def _select_changes(
        self, kinds: Sequence[ObservationKind], healthy_end_ns: int, alarm_ns: int, end_ns: int
    ) -> list[tuple[ObservationKind, PatternComparison, _SelectedChanges]]:
        """Compare each kind of observation, and select the changes that count."""
        late_ns = alarm_ns + (end_ns - alarm_ns) // 2
        contrasts = []
        for kind in kinds:
            observations = kind.observations
            patterns = compare_patterns(
                observations,
                observations.known_ns < healthy_end_ns,
                [observations.began_ns >= alarm_ns, observations.began_ns >= late_ns],
                min_support=self.min_support,
                similarity=self.similarity,
                min_g=self.min_g,
            )
            contrasts.append(
                (kind, patterns, np.where(observations.began_ns >= alarm_ns, patterns.surprise[patterns.code], 0.0))
            )
        chained = [(kind, surprise) for kind, _, surprise in contrasts if kind.is_chained]
        first = np.zeros(0, dtype=bool)
        if chained:
            first = select_first_surprises(
                np.concatenate([surprise for _, surprise in chained]),
                np.concatenate([kind.observations.trace for kind, _ in chained]),
                np.concatenate([kind.observations.known_ns for kind, _ in chained]),
                self.share,
            )
        changes, offset = [], 0
        for kind, patterns, surprise in contrasts:
            selected = _SelectedChanges(rows=surprise > 0, share=np.ones(len(patterns.g)))
            if kind.is_chained:
                rows = first[offset : offset + len(surprise)]
                offset += len(surprise)
                changes_per_pattern = np.bincount(patterns.code[surprise > 0], minlength=len(patterns.g))
                share = np.bincount(patterns.code[rows], minlength=len(patterns.g)) / np.maximum(changes_per_pattern, 1)
                selected = _SelectedChanges(rows=rows, share=share)
            changes.append((kind, patterns, selected))
        return changes

    def _weigh_alarm(self, alarm: MetricAlarm, spans: Spans, healthy_end_ns: int, alarm_ns: int) -> float:
        """Return the evidence of a metric alarm, as if it were an event in every span of its service."""
        is_own = spans.service == spans.names.index(alarm.service)
        healthy_count, recent_count = (
            count_effective(np.array([max(float(count), self.min_support)]), self.similarity)
            for count in (
                (is_own & (spans.end_ns < healthy_end_ns)).sum(),
                (is_own & (spans.start_ns >= alarm_ns)).sum(),
            )
        )
        return float(g_statistic(np.zeros(1), healthy_count, recent_count * max(alarm.share, 0.5), recent_count)[0])


def _divide_by_pod(
    spans: Spans, observations: Observations, comparison: PatternComparison, rows: Flags, weight: Matrix
) -> dict[tuple[str, str], float]:
    """Divide the evidence of each pattern among the pods of its changes."""
    total = np.maximum(np.bincount(comparison.code[rows], minlength=len(weight)), 1)
    rows_with_pod = np.flatnonzero(rows & (observations.pod >= 0))
    width = len(spans.pods) + 1
    key = observations.blamed[rows_with_pod] * width + observations.pod[rows_with_pod]
    share = weight[comparison.code[rows_with_pod]] / total[comparison.code[rows_with_pod]]
    owners, _, number = distinct(key)
    scores = np.bincount(number, weights=share, minlength=len(owners))
    return {
        (spans.names[owner // width], spans.pods[owner % width]): score
        for owner, score in zip(owners.tolist(), scores.tolist(), strict=True)
        if score > 0
    }
