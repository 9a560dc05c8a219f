"""Nezha's idea with conditional patterns: what follows an event, not how often a pattern comes up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.metric_alarms import MetricAlarm, metric_alarms
from faultset.baselines.methods.localization.traces.nezha import PAPER
from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.stats.scaling import Matrix
from faultset.baselines.traces.pattern_contrast import (
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
from faultset.baselines.traces.request_changes import Sort, observed
from faultset.baselines.traces.spans import Flags, Spans, read_spans

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """What counts of the changes of one sort."""

    rows: Flags
    """[n] observations that count."""
    share: Matrix
    """[p] share of each pattern's changes that do."""


@baseline(
    "nezha-patterns",
    title="Nezha with conditional patterns",
    task="localization",
    paper=f"Own variant of {PAPER}",
    kind="own",
    developed_on=OWN_AND_PUBLISHED,
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
        key = ("nezha-patterns", self.least_support, self.similarity, self.least_g, self.share, alarm_ns)
        return episode.once(key, lambda: self._ranking(episode, alarm_ns))

    def _ranking(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        spans = read_spans(episode)
        alarms = metric_alarms(episode, alarm_ns)
        healthy_end_ns = min(episode.reference[1], alarm_ns)
        sorts = observed(spans, episode, healthy_end_ns) if len(spans) else []
        scores: dict[str, float] = defaultdict(float)
        pods: dict[tuple[str, str], float] = defaultdict(float)
        evidence: list[Evidence] = []
        for sort, found, counted in self._changes(sorts, healthy_end_ns, alarm_ns, episode.window[1]):
            certainty = sort.seen.certainty[found.example]
            worth = np.where(found.surprise > 0, found.g * counted.share * certainty, 0.0)
            for owner, score in _by_pod(spans, sort.seen, found, counted.rows, worth).items():
                pods[owner] += score
            for number in np.flatnonzero(worth > 0):
                row = int(found.example[number])
                service = spans.names[sort.seen.blamed[row]]
                scores[service] += float(worth[number])
                before, before_all, now, now_all = (int(count) for count in found.counts[number])
                evidence.append(
                    Evidence(
                        service=service,
                        subject=sort.text(row, int(found.expected_row[number])),
                        score=float(worth[number]),
                        detail=f"{before} of {before_all} times in the reference, {now} of {now_all} since the alarm",
                    )
                )
        for alarm in alarms:
            worth_of = self._alarm_worth(alarm, spans, healthy_end_ns, alarm_ns)
            scores[alarm.service] += worth_of
            own = spans.service == spans.names.index(alarm.service)
            there = np.unique(spans.pod[own & (spans.pod >= 0) & (spans.end_ns >= alarm_ns)]).tolist()
            for code in there:
                # The metric is that of the service as a whole.
                pods[alarm.service, spans.pods[code]] += worth_of / len(there)
            evidence.append(
                Evidence(
                    service=alarm.service, subject=alarm.metric, score=worth_of, detail=f"{alarm.z:.0f} spreads away"
                )
            )
        evidence.sort(key=lambda item: (-item.score, item.service, item.subject))
        metrics = {(alarm.service, alarm.metric): alarm.z for alarm in alarms}
        return Ranking.of(scores, episode.services, evidence[:10], metrics, pods)

    def _changes(
        self, sorts: Sequence[Sort], healthy_end_ns: int, alarm_ns: int, end_ns: int
    ) -> list[tuple[Sort, Contrast, _Counted]]:
        """Contrast each sort, and tell which of its changes count."""
        late_ns = alarm_ns + (end_ns - alarm_ns) // 2
        contrasts = []
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
            contrasts.append((sort, found, np.where(seen.began_ns >= alarm_ns, found.surprise[found.code], 0.0)))
        chained = [(sort, surprise) for sort, _, surprise in contrasts if sort.rows_count]
        first = np.zeros(0, dtype=bool)
        if chained:
            first = come_first(
                np.concatenate([surprise for _, surprise in chained]),
                np.concatenate([sort.seen.trace for sort, _ in chained]),
                np.concatenate([sort.seen.known_ns for sort, _ in chained]),
                self.share,
            )
        changes, offset = [], 0
        for sort, found, surprise in contrasts:
            counted = _Counted(rows=surprise > 0, share=np.ones(len(found.g)))
            if sort.rows_count:
                here = first[offset : offset + len(surprise)]
                offset += len(surprise)
                among = np.bincount(found.code[surprise > 0], minlength=len(found.g))
                share = np.bincount(found.code[here], minlength=len(found.g)) / np.maximum(among, 1)
                counted = _Counted(rows=here, share=share)
            changes.append((sort, found, counted))
        return changes

    def _alarm_worth(self, alarm: MetricAlarm, spans: Spans, healthy_end_ns: int, alarm_ns: int) -> float:
        """Evidence as if the alarm were an event in every span of its service, of which it has at least some."""
        own = spans.service == spans.names.index(alarm.service)
        before, since = (
            effective(np.array([max(float(count), self.least_support)]), self.similarity)
            for count in ((own & (spans.end_ns < healthy_end_ns)).sum(), (own & (spans.start_ns >= alarm_ns)).sum())
        )
        return float(g_statistic(np.zeros(1), before, since * max(alarm.share, 0.5), since)[0])


def _by_pod(
    spans: Spans, seen: Observations, found: Contrast, rows: Flags, worth: Matrix
) -> dict[tuple[str, str], float]:
    """Part what each pattern is worth among the pods in which its changes were seen."""
    total = np.maximum(np.bincount(found.code[rows], minlength=len(worth)), 1)
    known = np.flatnonzero(rows & (seen.pod >= 0))
    width = len(spans.pods) + 1
    place = seen.blamed[known] * width + seen.pod[known]
    part = worth[found.code[known]] / total[found.code[known]]
    owners, _, number = distinct(place)
    scores = np.bincount(number, weights=part, minlength=len(owners))
    return {
        (spans.names[owner // width], spans.pods[owner % width]): score
        for owner, score in zip(owners.tolist(), scores.tolist(), strict=True)
        if score > 0
    }
