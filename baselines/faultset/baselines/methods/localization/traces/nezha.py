"""Nezha: event patterns that a healthy system has and a failing one no longer shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.metric_alarms import metric_alarms
from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.stats.scaling import Matrix
from faultset.baselines.traces.abnormal_traces import trace_start_ns
from faultset.baselines.traces.events import BEGIN, Events, read_own_events
from faultset.baselines.traces.slow_spans import Ints
from faultset.baselines.traces.spans import Flags, Spans, read_spans

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

PAPER = "Yu, Chen, Li, Wu, Zhang, Nezha, FSE 2023"
_DEEPEST = 64


@dataclass(frozen=True, kw_only=True)
class Edges:
    """[m] events that are directly linked in the graph of a trace."""

    source: Ints
    """Row of an event."""
    target: Ints


def event_graph(spans: Spans, events: Events) -> Edges:
    """Link events that follow one another in a span, and a span's beginning with the event that caused it.

    That is the last event before it of its parent when both are of one service, else the parent's beginning.
    """
    follows = np.flatnonzero(events.span[:-1] == events.span[1:])
    begins = np.flatnonzero(events.kind == BEGIN)
    begin_of = np.full(len(spans), -1)
    begin_of[events.span[begins]] = begins
    child = np.flatnonzero((spans.parent >= 0) & (begin_of >= 0))
    parent = spans.parent[child]
    # Events are sorted by span and time, so that one search finds the last one before an instant. Nanoseconds times
    # spans would overflow, so instants are replaced by their ranks.
    instants = np.unique(events.time_ns)
    width = len(instants) + 1
    place = events.span * width + np.searchsorted(instants, events.time_ns, side="right")
    begin = parent * width + np.searchsorted(instants, spans.start_ns[child], side="right")
    before = np.maximum(np.searchsorted(place, begin, side="right") - 1, begin_of[parent])
    same = spans.service[parent] == spans.service[child]
    source = np.where(same, before, begin_of[parent])
    return Edges(
        source=np.concatenate([follows, source]),
        target=np.concatenate([follows + 1, begin_of[child]]),
    )


def span_depths(spans: Spans) -> Ints:
    """[n] spans above each span."""
    depth = np.zeros(len(spans), dtype=np.int64)
    above = spans.parent
    for _ in range(_DEEPEST):
        there = above >= 0
        if not there.any():
            break
        depth += there
        above = np.where(there, spans.parent[above], -1)
    return depth


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """[p] kinds of links, with how often each came up."""

    source: Ints
    """Number of the first event."""
    target: Ints
    example: Ints
    """Row of `Edges` that shows the pattern."""
    service: Ints
    depth: Ints
    """Deepest span that the first event was seen in."""
    healthy: Matrix
    """Support in the healthy time."""
    suffering: Matrix
    """Support since the alarm, scaled to as many traces as the healthy time has."""


@baseline(
    "nezha",
    title="Nezha (reconstruction)",
    task="localization",
    paper=PAPER,
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("spans", "logs", "metrics"),
    requires=("spans",),
    speed="instant",
    complexity="O((N + L)·log(N + L) + P²), P lost patterns",
    departures=(
        "Supports are compared per trace, because the two windows hold different numbers of requests.",
        "A log statement is told by the place in the code that the line names, and by its Drain template otherwise.",
        "Metric alarms come from 6 sigma around the reference for metrics of the roles cpu and memory, not from "
        "fixed limits of two applications; network latency is left out.",
        "A service is ranked by its best pattern; the paper ranks patterns and calls a hit right when both events and "
        "the service are.",
        "Equal score and depth stay a tie; the published code counts a tie as the better rank.",
    ),
)
class Nezha(Untrained):
    """Rank services by patterns of two linked events that the healthy time has and the faulty one lost.

    Parameters
    ----------
    least_support
        Patterns seen no more often than this in the healthy time are left out.
    least_score
        Lost share of a pattern's support, s / (s + s'), that is needed.

    References
    ----------
    Yu et al., Nezha: interpretable fine-grained root causes analysis for microservices on multi-modal observability
    data, FSE 2023.
    """

    def __init__(self, *, least_support: int = 5, least_score: float = 0.67) -> None:
        self.least_support = least_support
        self.least_score = least_score

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their best lost pattern; deeper ones first among equals."""
        spans = read_spans(episode)
        if not len(spans):
            return Ranking.abstain()
        events = read_own_events(episode, spans)
        edges = event_graph(spans, events)
        alarms = {alarm.service: alarm.metric for alarm in metric_alarms(episode, alarm_ns)}
        alarmed = np.array([name in alarms for name in spans.names], dtype=bool)
        began = trace_start_ns(spans)
        healthy_end_ns = min(episode.reference[1], alarm_ns)
        healthy, suffering = began < healthy_end_ns, began >= alarm_ns
        if not healthy.any() or not suffering.any():
            return Ranking.abstain()
        patterns = self._patterns(spans, events, edges, alarmed, healthy, suffering)
        total = patterns.healthy + patterns.suffering
        score = np.divide(patterns.healthy, total, out=np.zeros_like(total), where=total > 0)
        kept = (patterns.healthy > self.least_support) & (score >= self.least_score) & (patterns.service >= 0)
        kept[kept] = ~follows_lost(patterns.source[kept], patterns.target[kept], score[kept])
        if not kept.any():
            return Ranking.abstain()
        worth = score + patterns.depth / (1000 * _DEEPEST)
        scores: dict[str, float] = {}
        evidence: list[Evidence] = []
        for number in np.flatnonzero(kept)[np.argsort(-worth[kept], kind="stable")]:
            service = spans.names[patterns.service[number]]
            row = int(patterns.example[number])
            if len(evidence) < 10:
                evidence.append(
                    Evidence(
                        service=service,
                        subject=f"{events.text(int(edges.source[row]))} -> {events.text(int(edges.target[row]))}",
                        score=float(worth[number]),
                        detail=f"lost pattern{', alarm of ' + alarms[service] if service in alarms else ''}",
                    )
                )
            scores.setdefault(service, float(worth[number]))
        return Ranking.of(scores, episode.services, evidence)

    def _patterns(
        self, spans: Spans, events: Events, edges: Edges, alarmed: Flags, healthy: Flags, suffering: Flags
    ) -> Patterns:
        key = events.key
        source, target = key[edges.source], key[edges.target]
        _, number, code = distinct(source * (int(key.max()) + 1) + target)
        row_of = edges.source
        trace = spans.trace[events.span[row_of]]
        service = spans.service[events.span[row_of]]
        # An alarm is an event of its own between a span's beginning and what follows, which then is no longer linked.
        cut = (events.kind[row_of] == BEGIN) & (service >= 0) & alarmed[service] & suffering[trace]
        healthy_counts = np.bincount(code[healthy[trace]], minlength=len(number)).astype(float)
        now = np.bincount(code[suffering[trace] & ~cut], minlength=len(number)).astype(float)
        depth = np.zeros(len(number), dtype=np.int64)
        np.maximum.at(depth, code, span_depths(spans)[events.span[row_of]])
        return Patterns(
            source=source[number],
            target=target[number],
            example=number,
            service=service[number],
            depth=depth,
            healthy=healthy_counts,
            suffering=now * (healthy.sum() / suffering.sum()),
        )


def follows_lost(source: Ints, target: Ints, score: Matrix) -> Flags:
    """Tell which lost patterns only follow on another one that is lost at least as much.

    >>> follows_lost(np.array([1, 2]), np.array([2, 3]), np.array([1.0, 1.0])).tolist()
    [False, True]
    """
    led_by = (source[:, None] == target[None, :]) & (score[:, None] <= score[None, :])
    return np.asarray(led_by.any(axis=1))
