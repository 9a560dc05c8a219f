"""Nezha's idea with conditional patterns: what follows an event, not how often a pattern comes up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.metric_alarms import MetricAlarm, metric_alarms
from faultset.baselines.nezha import PAPER
from faultset.baselines.pattern_contrast import (
    LEAST_G,
    LEAST_SUPPORT,
    SIMILARITY,
    Contrast,
    Observations,
    come_first,
    contrast,
    effective,
    g_statistic,
)
from faultset.baselines.protocol import Evidence, Ranking, Untrained
from faultset.baselines.registry import baseline
from faultset.baselines.scaling import Matrix
from faultset.baselines.spans import Spans, read_spans
from faultset.baselines.trace_events import (
    LOG,
    RETURN,
    Clients,
    Events,
    client_spans,
    code_events,
    own_events,
    read_log_events,
)
from faultset.baselines.traces import Ints

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

SLOW_FACTOR = 3.0
SLOW_QUANTILE = 0.9
SLOW_LEAST_NS = 2_000_000
AFTER_ANSWER = 0.5


@dataclass(frozen=True, kw_only=True)
class _Sort:
    """One sort of observations, with a way to tell people what a row shows."""

    seen: Observations
    text: Callable[[int, int], str]
    """Says what a row shows, given a row of what was usual."""
    rows_count: bool = True
    """Whether a change takes part in what came first; timing does not, since it leaves out the time of others."""


@baseline(
    "nezha-patterns",
    title="Nezha with conditional patterns",
    task="localization",
    paper=f"Own variant of {PAPER}",
    kind="method",
    tables=("spans", "logs", "metrics"),
    speed="instant",
    complexity="O((N + L)·log(N + L) + S·T)",
    departures=(
        "A pattern is compared given its first event, so that a change of what users ask for is no change of it.",
        "New patterns count, not only lost ones; a lost pattern is always replaced by a new one after its first event.",
        "Log lines follow log lines and calls follow calls, because logs and spans are stamped by different clocks.",
        "Evidence is a likelihood ratio on effective counts instead of a ratio of supports.",
        "Only a change that no earlier change in the same request explains counts in full.",
        "Time that an operation spends itself, and on the way to another service, are events too: usual or slow.",
    ),
)
class NezhaPatterns(Untrained):
    """Rank services by changes of what follows what within requests, counting those that came first.

    Parameters
    ----------
    least_support
        Events seen less often in the reference are not judged.
    similarity
        Correlation of requests of one window; bounds what one event can contribute.
    least_g
        Evidence that a pattern needs to count.
    share
        An earlier change explains a later one when it is at least this share as surprising.

    References
    ----------
    Yu et al., Nezha: interpretable fine-grained root causes analysis for microservices on multi-modal observability
    data, FSE 2023, for the events; the comparison is our own.
    """

    def __init__(
        self,
        *,
        least_support: int = LEAST_SUPPORT,
        similarity: float = SIMILARITY,
        least_g: float = LEAST_G,
        share: float = 0.5,
    ) -> None:
        self.least_support = least_support
        self.similarity = similarity
        self.least_g = least_g
        self.share = share

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by the evidence of their changes."""
        spans = read_spans(episode)
        alarms = metric_alarms(episode, alarm_ns)
        healthy_end_ns = min(episode.reference[1], alarm_ns)
        sorts = _observed(spans, episode, healthy_end_ns) if len(spans) else []
        scores: dict[str, float] = defaultdict(float)
        evidence: list[Evidence] = []
        for sort, found, first in self._changes(sorts, healthy_end_ns, alarm_ns, episode.view[1]):
            certainty = sort.seen.certainty[found.example]
            worth = np.where(found.surprise > 0, found.g * first * certainty, 0.0)
            for number in np.flatnonzero(worth > 0):
                row = int(found.example[number])
                service = spans.names[sort.seen.blamed[row]]
                scores[service] += float(worth[number])
                usual, usual_all, now, now_all = (int(count) for count in found.counts[number])
                evidence.append(
                    Evidence(
                        service=service,
                        subject=sort.text(row, int(found.usual[number])),
                        score=float(worth[number]),
                        detail=f"{usual} of {usual_all} times in the reference, {now} of {now_all} since the alarm",
                    )
                )
        for alarm in alarms:
            worth_of = self._alarm_worth(alarm, spans, healthy_end_ns, alarm_ns)
            scores[alarm.service] += worth_of
            evidence.append(
                Evidence(
                    service=alarm.service, subject=alarm.metric, score=worth_of, detail=f"{alarm.z:.0f} spreads away"
                )
            )
        evidence.sort(key=lambda item: (-item.score, item.service, item.subject))
        metrics = {(alarm.service, alarm.metric): alarm.z for alarm in alarms}
        return Ranking.of(scores, episode.services, evidence[:10], metrics)

    def _changes(
        self, sorts: Sequence[_Sort], healthy_end_ns: int, alarm_ns: int, end_ns: int
    ) -> list[tuple[_Sort, Contrast, Matrix]]:
        """Contrast each sort, and give for each pattern the share of its changes that came first."""
        late_ns = alarm_ns + (end_ns - alarm_ns) // 2
        judged = []
        for sort in sorts:
            seen = sort.seen
            found = contrast(
                seen,
                seen.known_ns < healthy_end_ns,
                [seen.began_ns >= alarm_ns, seen.began_ns >= late_ns],
                least_support=self.least_support,
                similarity=self.similarity,
                least_g=self.least_g,
            )
            judged.append((sort, found, np.where(seen.began_ns >= alarm_ns, found.surprise[found.code], 0.0)))
        chained = [(sort, surprise) for sort, _, surprise in judged if sort.rows_count]
        first = np.zeros(0, dtype=bool)
        if chained:
            first = come_first(
                np.concatenate([surprise for _, surprise in chained]),
                np.concatenate([sort.seen.trace for sort, _ in chained]),
                np.concatenate([sort.seen.known_ns for sort, _ in chained]),
                self.share,
            )
        changes, offset = [], 0
        for sort, found, surprise in judged:
            share = np.ones(len(found.g))
            if sort.rows_count:
                here = first[offset : offset + len(surprise)]
                offset += len(surprise)
                among = np.bincount(found.code[surprise > 0], minlength=len(found.g))
                share = np.bincount(found.code[here], minlength=len(found.g)) / np.maximum(among, 1)
            changes.append((sort, found, share))
        return changes

    def _alarm_worth(self, alarm: MetricAlarm, spans: Spans, healthy_end_ns: int, alarm_ns: int) -> float:
        """Evidence as if the alarm were an event in every span of its service, of which it has at least some."""
        own = spans.service == spans.names.index(alarm.service)
        before, since = (
            effective(np.array([max(float(count), self.least_support)]), self.similarity)
            for count in ((own & (spans.end_ns < healthy_end_ns)).sum(), (own & (spans.start_ns >= alarm_ns)).sum())
        )
        return float(g_statistic(np.zeros(1), before, since * max(alarm.share, 0.5), since)[0])


def _observed(spans: Spans, episode: EpisodeView, healthy_end_ns: int) -> list[_Sort]:
    logs = read_log_events(episode, spans)
    clients = client_spans(spans, logs)
    lines, calls = own_events(spans, logs), code_events(spans, logs, clients)
    return [
        _successions(spans, lines, np.flatnonzero(~clients.is_client[lines.span])),
        _successions(spans, calls, np.flatnonzero(calls.kind != LOG)),
        *_paces(spans, clients, healthy_end_ns),
    ]


def _successions(spans: Spans, events: Events, kept: Ints) -> _Sort:
    """What follows each event in its span, told apart by the operation that the span was called from."""
    source, target = kept[:-1], kept[1:]
    joined = events.span[source] == events.span[target]
    joined &= spans.service[events.span[source]] >= 0
    source, target = source[joined], target[joined]
    span = events.span[source]
    owner = spans.service[span]
    above = spans.parent[span]
    caller = np.where(above >= 0, spans.operation[above], -1) + 1
    key = events.key
    place = np.unique(owner * (len(spans.operations) + 1) + caller, return_inverse=True)[1]
    failed_answer = (events.kind[target] == RETURN) & events.failed[target] & (events.service[target] >= 0)
    # What a service does after an answer depends on what the answer was.
    after_answer = (events.kind[source] == RETURN) & (events.service[source] != owner)
    # Numbered anew, so that their product with the number of places fits.
    kinds = np.unique(key, return_inverse=True)[1]
    seen = Observations(
        source=place * (int(kinds.max(initial=0)) + 1) + kinds[source],
        target=kinds[target],
        blamed=np.where(failed_answer, events.service[target], owner),
        trace=spans.trace[span],
        began_ns=events.time_ns[source],
        known_ns=events.time_ns[target],
        certainty=np.where(after_answer, AFTER_ANSWER, 1.0),
    )

    def text(row: int, usual: int) -> str:
        expected = "" if usual == row else f", usually {events.text(int(target[usual]))}"
        return f"{events.text(int(source[row]))} -> {events.text(int(target[row]))}{expected}"

    return _Sort(seen=seen, text=text)


def _paces(spans: Spans, clients: Clients, healthy_end_ns: int) -> list[_Sort]:
    """Usual or slow: the own time of each service's code, the way to each service, and the way from each one."""
    own = spans.own_ns
    code = np.flatnonzero(~clients.is_client & (spans.service >= 0))
    calls = np.flatnonzero(clients.is_client & (clients.called >= 0) & (spans.service >= 0))
    shown = np.where(clients.answer[calls] >= 0, clients.answer[calls], calls)
    way = spans.duration_ns[calls] - np.where(clients.answer[calls] >= 0, spans.duration_ns[shown], 0)
    group = (spans.service[calls] * len(spans.names) + clients.called[calls]) * len(spans.operations)
    group = group + spans.operation[shown]
    return [
        _pace(
            spans,
            code,
            own[code],
            spans.service[code] * len(spans.operations) + spans.operation[code],
            spans.service[code],
            healthy_end_ns,
            "slow code",
        ),
        _pace(spans, calls, way.astype(float), group, clients.called[calls], healthy_end_ns, "slow way to the service"),
        _pace(
            spans, calls, way.astype(float), group, spans.service[calls], healthy_end_ns, "slow way from the service"
        ),
    ]


def _pace(
    spans: Spans, rows: Ints, spent_ns: Matrix, group: Ints, service: Ints, healthy_end_ns: int, words: str
) -> _Sort:
    known = spans.end_ns[rows] < healthy_end_ns
    slow = spent_ns > slow_limits(group, spent_ns, known)
    return _Sort(
        seen=Observations(
            source=service,
            target=slow.astype(np.int64),
            blamed=service,
            trace=spans.trace[rows],
            began_ns=spans.start_ns[rows],
            known_ns=spans.end_ns[rows],
            # Becoming fast again is no trouble.
            certainty=slow.astype(float),
        ),
        text=lambda row, usual: words,
        rows_count=False,
    )


def slow_limits(group: Ints, spent_ns: Matrix, known: np.ndarray, *, least: int = 3) -> Matrix:
    """Some times what nearly all known rows of each row's group spent; infinite for groups of fewer than `least`."""
    group = np.unique(group, return_inverse=True)[1]
    size = int(group.max()) + 1 if len(group) else 0
    order = np.lexsort([spent_ns[known], group[known]])
    sorted_groups, spent = group[known][order], spent_ns[known][order]
    begin = np.searchsorted(sorted_groups, np.arange(size))
    count = np.bincount(sorted_groups, minlength=size)
    limit = np.full(size, np.inf)
    enough = np.flatnonzero(count >= least)
    place = begin[enough] + np.ceil(SLOW_QUANTILE * count[enough]).astype(int) - 1
    limit[enough] = np.maximum(SLOW_FACTOR * spent[place], SLOW_LEAST_NS)
    return limit[group]
