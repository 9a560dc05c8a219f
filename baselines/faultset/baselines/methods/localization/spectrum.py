"""Spectrum-based localization: rank services, or sets of them, in abnormal traces but not in normal ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.abnormal_traces import TraceHealth, classify_traces_at_alarm
from faultset.baselines.features.spans import (
    SD_FLOOR,
    Flags,
    Ints,
    Invocations,
    Spans,
    find_called_pods,
    find_calling_pods,
    read_spans,
)
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView

Formula = Literal["ochiai", "dstar2"]
_MICRORANK = "Yu, Chen, Chen, Guan, Ma, Bi, MicroRank, WWW 2021"
_SHARED_DEPARTURES = (
    "Failed traces are abnormal too, because most faults here make requests fail.",
    "Expected durations are sums of exclusive operation times, because inclusive times add up to more than the trace.",
    "Traces of the reference count as normal too, because the test window may have no normal traces.",
    "A call without a response is attributed to the called service.",
)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Operations of each trace."""

    operations: tuple[tuple[str, str], ...]
    """(service, span name) of each column."""
    pods: tuple[str | None, ...]
    """Pod of each column; None if pods are merged or the call got no response."""
    kind: Ints
    """[calls] column of each call."""
    matrix: sparse.csr_matrix
    """[traces, operations] 1 if the trace calls the operation, otherwise 0."""


def measure_coverage(spans: Spans, *, by_pod: bool = False) -> Coverage:
    """Return the operations that each trace calls, separately for each pod if `by_pod` is set."""
    calls = spans.calls
    trace = spans.trace[calls.row]
    pod = find_called_pods(spans, calls) if by_pod else np.full(len(trace), -1)
    _, first, kind = distinct(calls.kind * (len(spans.pods) + 1) + pod + 1)
    matrix = sparse.csr_matrix((np.ones(len(trace)), (trace, kind)), shape=(spans.traces, len(first)), dtype=float)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return Coverage(
        operations=tuple(
            (spans.names[callee], spans.operations[operation])
            for callee, operation in zip(calls.callee[first], calls.operation[first], strict=True)
        ),
        pods=tuple(spans.pods[code] if code >= 0 else None for code in pod[first].tolist()),
        kind=kind,
        matrix=matrix,
    )


def spectrum_scores(failed_with: Matrix, failed: Matrix, passed_with: Matrix, formula: Formula = "ochiai") -> Matrix:
    """Return the suspicion of each operation from (weighted) counts of traces.

    Parameters
    ----------
    failed_with, passed_with
        Number of abnormal and of normal traces with the operation.
    failed
        Number of abnormal traces.

    Examples
    --------
    >>> with_cart_front_db = np.array([4.0, 4.0, 1.0]), np.full(3, 4.0), np.array([1.0, 6.0, 3.0])
    >>> spectrum_scores(*with_cart_front_db).round(4).tolist()
    [0.8944, 0.6325, 0.25]
    >>> spectrum_scores(*with_cart_front_db, "dstar2").round(4).tolist()
    [16.0, 2.6667, 0.1667]
    """
    missed = failed - failed_with
    if formula == "dstar2":
        return failed_with**2 / np.maximum(passed_with + missed, 1e-9)
    product = (failed_with + passed_with) * failed
    return np.divide(failed_with, np.sqrt(product), out=np.zeros_like(product), where=product > 0)


def trace_weights(
    matrix: sparse.csr_matrix,
    teleport: Matrix,
    calls: sparse.csr_matrix,
    *,
    damping: float = 0.85,
    call_weight: float = 0.01,
    rounds: int = 25,
) -> Matrix:
    """Return the importance of each operation by PageRank on the graph of traces and operations.

    Parameters
    ----------
    matrix
        [traces, operations] 1 if the trace has the operation.
    teleport
        [traces] preference of each trace, with sum 1.
    calls
        [operations, operations] share of the row's calls that go to the column.
    """
    per_trace = np.maximum(np.asarray(matrix.sum(axis=1)).ravel(), 1.0)
    per_operation = np.maximum(np.asarray(matrix.sum(axis=0)).ravel(), 1.0)
    traces = np.full(len(per_trace), 1.0 / max(1, len(per_trace)))
    operations = np.full(len(per_operation), 1.0 / max(1, len(per_operation)))
    for _ in range(rounds):
        new = damping * (matrix.T @ (traces / per_trace) + call_weight * (calls.T @ operations))
        traces = damping * (matrix @ (operations / per_operation)) + (1 - damping) * teleport
        operations = new / max(float(new.max(initial=0.0)), 1e-12)
        traces = traces / max(float(traces.max(initial=0.0)), 1e-12)
    return operations


class _Spectrum(TrainingFreeBaseline):
    """Base class that classifies traces since the alarm and ranks services by their best operation."""

    def __init__(self, *, formula: Formula = "ochiai", sigmas: float = 1.5, before: int = 2) -> None:
        self.formula: Formula = formula
        self.sigmas = sigmas
        self.before = before

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        spans = read_spans(episode)
        if not len(spans):
            return Ranking.abstain()
        health = classify_traces_at_alarm(episode, alarm_ns, before=self.before, sigmas=self.sigmas)
        normal = health.healthy | (health.in_test_window & ~health.abnormal)
        if not health.abnormal.any():
            return Ranking.abstain()
        coverage = episode.once("coverage", lambda: measure_coverage(spans))
        scores = self._score_operations(spans, coverage, health, normal)
        best: dict[str, float] = {}
        for (service, _), score in zip(coverage.operations, scores.tolist(), strict=True):
            best[service] = max(best.get(service, 0.0), score)
        order = np.argsort(-scores, kind="stable")[:5]
        evidence = [
            Evidence(
                service=coverage.operations[column][0],
                subject=coverage.operations[column][1],
                score=float(scores[column]),
                detail="operation of abnormal traces",
            )
            for column in order
            if scores[column] > 0
        ]
        return Ranking.of(best, episode.services, evidence, pods=self._score_pods(episode, spans, health, normal))

    def _score_pods(
        self, episode: EpisodeView, spans: Spans, health: TraceHealth, normal: Flags
    ) -> dict[tuple[str, str], float]:
        coverage = episode.once("coverage of pods", lambda: measure_coverage(spans, by_pod=True))
        best: dict[tuple[str, str], float] = {}
        scores = self._score_operations(spans, coverage, health, normal).tolist()
        for (service, _), pod, score in zip(coverage.operations, coverage.pods, scores, strict=True):
            if pod is not None:
                best[service, pod] = max(best.get((service, pod), 0.0), score)
        return best

    def _score_operations(self, spans: Spans, coverage: Coverage, health: TraceHealth, normal: Flags) -> Matrix:
        raise NotImplementedError


@localizer(
    "spectrum",
    title="Spectrum (T-Rank)",
    paper="Ye, Chen, Yu, T-Rank, CCGrid 2021",
    tables=("spans",),
    complexity="O(N)",
    departures=_SHARED_DEPARTURES,
)
class Spectrum(_Spectrum):
    """Rank services by how much more often their operations occur in abnormal traces than in normal ones.

    Parameters
    ----------
    formula
        `ochiai` or `dstar2`.
    sigmas
        A trace is too long if it exceeds the sum of mean + `sigmas` sd over its operations.
    before
        Steps before the alarm at which the test window begins.

    References
    ----------
    Ye, Chen, Yu, T-Rank: a lightweight spectrum based fault localization approach for microservice systems,
    CCGrid 2021.
    """

    def _score_operations(self, spans: Spans, coverage: Coverage, health: TraceHealth, normal: Flags) -> Matrix:
        failed_with = coverage.matrix.T @ health.abnormal.astype(float)
        passed_with = coverage.matrix.T @ normal.astype(float)
        failed = np.full(len(failed_with), float(health.abnormal.sum()))
        return spectrum_scores(failed_with, failed, passed_with, self.formula)


@localizer(
    "microrank",
    title="MicroRank",
    paper=_MICRORANK,
    tables=("spans",),
    complexity="O(I·N), I rounds",
    departures=(
        *_SHARED_DEPARTURES,
        "Traces with the same set of operations are of one kind; rare kinds are preferred.",
    ),
)
class MicroRank(_Spectrum):
    """Rank services by a spectrum with counts weighted by PageRank in abnormal and normal traces.

    Parameters
    ----------
    formula
        `ochiai` or `dstar2`.
    sigmas
        A trace is too long if it exceeds the sum of mean + `sigmas` sd over its operations.
    before
        Steps before the alarm at which the test window begins.

    References
    ----------
    Yu et al., MicroRank: end-to-end latency issue localization with extended spectrum analysis in microservice
    environments, WWW 2021.
    """

    def _score_operations(self, spans: Spans, coverage: Coverage, health: TraceHealth, normal: Flags) -> Matrix:
        calls = _compute_call_shares(spans, coverage)
        kinds = _encode_trace_kinds(coverage.matrix)
        abnormal_traces, normal_traces = coverage.matrix[health.abnormal], coverage.matrix[normal]
        shortness = 1.0 / np.maximum(np.asarray(abnormal_traces.sum(axis=1)).ravel(), 1.0)
        weight_failed = trace_weights(
            abnormal_traces, 0.5 * _divide_by_sum(shortness) + 0.5 * _prefer_rare_kinds(kinds[health.abnormal]), calls
        )
        weight_passed = (
            trace_weights(normal_traces, _prefer_rare_kinds(kinds[normal]), calls)
            if normal.any()
            else np.zeros_like(weight_failed)
        )
        failed_with = weight_failed * (coverage.matrix.T @ health.abnormal.astype(float))
        failed = weight_failed * float(health.abnormal.sum())
        passed_with = weight_passed * (coverage.matrix.T @ normal.astype(float))
        return spectrum_scores(failed_with, failed, passed_with, self.formula)


def _divide_by_sum(values: Matrix) -> Matrix:
    return values / max(float(values.sum()), 1e-12)


def _prefer_rare_kinds(kinds: Ints) -> Matrix:
    """Return the preference of each trace, which is high for rare kinds."""
    code = distinct(kinds).code
    return _divide_by_sum(1.0 / np.bincount(code)[code])


def _encode_trace_kinds(matrix: sparse.csr_matrix) -> Ints:
    """Return a code for each trace's set of operations, by a hash of the set."""
    operations = np.asarray(matrix.sum(axis=0)).size
    key = np.random.default_rng(0).integers(1, 2**40, operations).astype(float)
    return np.unique(matrix @ key, return_inverse=True)[1].astype(np.int64)


def _compute_call_shares(spans: Spans, coverage: Coverage) -> sparse.csr_matrix:
    """Return the share of each operation's calls that go to each other operation."""
    calls = spans.calls
    kind_of = np.full(len(spans), -1)
    kind_of[calls.row] = coverage.kind
    # The calling operation may be several spans above the call.
    ancestor = spans.parent[calls.row]
    for _ in range(8):
        unknown = (ancestor >= 0) & (kind_of[ancestor] < 0)
        if not unknown.any():
            break
        ancestor = np.where(unknown, spans.parent[ancestor], ancestor)
    has_caller = (ancestor >= 0) & (kind_of[ancestor] >= 0)
    count = len(coverage.operations)
    matrix = sparse.csr_matrix(
        (np.ones(int(has_caller.sum())), (kind_of[ancestor[has_caller]], coverage.kind[has_caller])),
        shape=(count, count),
    )
    matrix.sum_duplicates()
    outgoing = np.maximum(np.asarray(matrix.sum(axis=1)).ravel(), 1.0)
    return sparse.diags(1.0 / outgoing) @ matrix


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


@localizer(
    "tracerca",
    title="TraceRCA",
    paper="Li et al., TraceRCA, IWQoS 2021",
    tables=("spans",),
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
