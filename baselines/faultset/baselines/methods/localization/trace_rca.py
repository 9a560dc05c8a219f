"""TraceRCA: association rules between services of a trace and abnormal traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from faultset.baselines.api.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.stats.scaling import Matrix
from faultset.baselines.traces.spans import (
    SD_FLOOR,
    Flags,
    Ints,
    Invocations,
    Spans,
    find_called_pods,
    find_calling_pods,
    read_spans,
)
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


def jaccard(abnormal_with: Matrix, abnormal: float, all_with: Matrix) -> Matrix:
    """Return the Jaccard index of "has these services" and "is abnormal" among traces.

    It is H / (2 - H), where H is the harmonic mean of support and confidence.

    >>> jaccard(np.array([4.0, 4.0, 1.0]), 4.0, np.array([5.0, 10.0, 4.0])).round(4).tolist()
    [0.8, 0.4, 0.1429]
    """
    union = abnormal + all_with - abnormal_with
    return np.divide(abnormal_with, union, out=np.zeros_like(abnormal_with), where=union > 0)


def measure_severities(values: Matrix, kinds: Ints, healthy: Flags) -> Matrix:
    """Return the distance of each value from the healthy mean of its kind, in sd; 0 for kinds without healthy rows."""
    size = int(kinds.max()) + 1 if len(kinds) else 0
    healthy_kinds = kinds[healthy]
    count = np.bincount(healthy_kinds, minlength=size)
    mean = np.bincount(healthy_kinds, weights=values[healthy], minlength=size) / np.maximum(count, 1)
    squares = np.bincount(healthy_kinds, weights=(values[healthy] - mean[healthy_kinds]) ** 2, minlength=size)
    sd = np.maximum(np.sqrt(squares / np.maximum(count - 1, 1)), np.maximum(SD_FLOOR * mean, 1e-3))
    return np.where(count[kinds] > 0, np.abs(values - mean[kinds]) / sd[kinds], 0.0)


@baseline(
    "tracerca",
    title="TraceRCA",
    task="localization",
    paper="Li et al., TraceRCA, IWQoS 2021",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("spans",),
    speed="instant",
    complexity="O(N + V²·K), K sets of services in traces",
    departures=(
        "The features of an invocation are latency and failure, because spans have no resource usage.",
        "Only sets of one or two services are mined, which takes less than a second.",
        "A call without a response is attributed to the called service.",
        "In- and out-abnormality are shares of a service's calls, so that busy services have no advantage.",
    ),
)
class TraceRCA(TrainingFreeBaseline):
    """Rank services by sets of services that are frequent in abnormal traces and not in others.

    Parameters
    ----------
    feature_rise
        A feature is used if its mean severity increases by this share.
    severity
        An invocation is abnormal if a feature deviates by this many sd.
    min_support
        Minimum share of abnormal traces that contain a set.
    before
        Steps before the alarm at which the test window begins.

    References
    ----------
    Li et al., Practical root cause localization for microservice systems via trace analysis, IWQoS 2021.
    """

    def __init__(
        self, *, feature_rise: float = 0.1, severity: float = 3.0, min_support: float = 0.1, before: int = 2
    ) -> None:
        self.feature_rise = feature_rise
        self.severity = severity
        self.min_support = min_support
        self.before = before

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their best set, times |abnormal share of incoming calls - of outgoing calls|."""
        spans = read_spans(episode)
        calls = spans.calls
        start_ns = alarm_ns - round(self.before * episode.context.resolution_s * SECOND_NS)
        is_healthy = spans.end_ns[calls.row] < min(episode.reference[1], alarm_ns)
        in_test_window = spans.start_ns[calls.row] >= start_ns
        if not in_test_window.any() or not is_healthy.any():
            return Ranking.abstain()
        is_abnormal = in_test_window & self._flag_abnormal(spans, calls, is_healthy, in_test_window)
        if not is_abnormal.any():
            return Ranking.abstain()
        inputs = (spans, calls, in_test_window, is_abnormal)
        scores, incoming, outgoing = self._score(*inputs, calls.callee, calls.caller, len(spans.names))
        called = find_called_pods(spans, calls)
        pod_scores, _, _ = self._score(*inputs, called, find_calling_pods(spans, calls), len(spans.pods))
        owner = np.full(len(spans.pods), -1)
        owner[called[called >= 0]] = calls.callee[called >= 0]
        pods = {
            (spans.names[owner[code]], spans.pods[code]): float(pod_scores[code]) for code in np.flatnonzero(owner >= 0)
        }
        evidence = [
            Evidence(
                service=spans.names[code],
                subject="calls",
                score=float(scores[code]),
                detail=f"{incoming[code]:.0%} of incoming and {outgoing[code]:.0%} of outgoing calls abnormal",
            )
            for code in np.argsort(-scores, kind="stable")[:5]
            if scores[code] > 0
        ]
        services = dict(zip(spans.names, scores.tolist(), strict=True))
        return Ranking.of(services, episode.services, evidence, pods=pods)

    def _score(
        self,
        spans: Spans,
        calls: Invocations,
        in_test_window: Flags,
        is_abnormal: Flags,
        callee: Ints,
        caller: Ints,
        size: int,
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Score services or pods by their best set, times the difference of incoming and outgoing abnormality."""
        set_score = self._score_sets(spans, calls, in_test_window & (callee >= 0), is_abnormal, callee, size)
        incoming = _compute_share(callee, is_abnormal, in_test_window & (callee >= 0), size)
        outgoing = _compute_share(caller, is_abnormal, in_test_window & (caller >= 0), size)
        return set_score * np.abs(incoming - outgoing), incoming, outgoing

    def _flag_abnormal(self, spans: Spans, calls: Invocations, healthy: Flags, in_test_window: Flags) -> Flags:
        is_abnormal = np.zeros(len(calls.row), dtype=bool)
        for values in (spans.duration_ns[calls.row].astype(float), spans.error[calls.row].astype(float)):
            severity = measure_severities(values, calls.kind, healthy)
            healthy_mean, recent_mean = severity[healthy].mean(), severity[in_test_window].mean()
            if recent_mean > healthy_mean * (1 + self.feature_rise):
                is_abnormal |= severity > self.severity
        return is_abnormal

    def _score_sets(
        self, spans: Spans, calls: Invocations, in_test_window: Flags, is_abnormal: Flags, callee: Ints, size: int
    ) -> Matrix:
        """Return the best Jaccard index of a frequent set with each service or pod."""
        trace = spans.trace[calls.row[in_test_window]]
        members = sparse.csr_matrix((np.ones(len(trace)), (trace, callee[in_test_window])), shape=(spans.traces, size))
        members.sum_duplicates()
        members.data[:] = 1.0
        abnormal = np.zeros(spans.traces, dtype=bool)
        abnormal[spans.trace[calls.row[is_abnormal]]] = True
        pair_counts = np.asarray((members.T @ members).todense())
        abnormal_members = members[abnormal]
        abnormal_pair_counts = np.asarray((abnormal_members.T @ abnormal_members).todense())
        index = jaccard(abnormal_pair_counts, float(abnormal.sum()), pair_counts)
        index[abnormal_pair_counts < self.min_support * abnormal.sum()] = 0.0
        return index.max(axis=1, initial=0.0)


def _compute_share(services: Ints, hits: Flags, selected: Flags, size: int) -> Matrix:
    total = np.bincount(services[selected], minlength=size)[:size]
    count = np.bincount(services[selected], weights=hits[selected], minlength=size)[:size]
    return count / np.maximum(total, 1)
