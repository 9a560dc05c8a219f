"""PDiagnose: a vote of metrics, logs and traces on the faulty service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from faultset.baselines.contract import Detection, Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.abnormal_traces import span_limits
from faultset.baselines.features.log_lines import error_line_counts, log_excess, select_error_lines
from faultset.baselines.features.metric_alarms import (
    P0,
    Combine,
    Flags,
    compute_queue_features,
    flag_dense_steps,
    kpi_flags,
    reference_density,
    series_evidence,
)
from faultset.baselines.features.spans import attribute_spans, read_spans
from faultset.baselines.features.windows import (
    TimeWindow,
    Windows,
    cut_window_after,
    detection_windows,
    localization_windows,
)
from faultset.baselines.registry import detector, localizer
from faultset.baselines.stats.scaling import varies
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView

QUEUE = 10
PER_KPI = 10
SHORT_STEP_S = 5
SpanTime = Literal["exclusive", "inclusive"]
Counts = Mapping[str, float]
_PAPER = "Hou, Jia, Wu, Li, Han, ISPA 2021"
_DEPARTURES = (
    "Thresholds of the anomaly queue are quantiles of the reference, because the paper's constants are unreadable.",
    "Deviations in both directions count. Constant series raise no anomaly, because a standard deviation is at least "
    "1 % of the level, and at least a quarter of the metric's standard deviation over all services.",
    "Each source votes with shares of its count, because otherwise the source with most rows would decide.",
    "Only log lines and spans in excess of the reference rate count; a source votes only if its total is more than "
    "three standard deviations above that rate.",
    "Spans are judged by exclusive time; a call without a response is attributed to the called service.",
)


def wma_window(step_s: float) -> int:
    """Return the number of samples in the moving average: 10 for steps of at most 5 s, otherwise 4."""
    return 10 if step_s <= SHORT_STEP_S else 4


def has_information(total: float, expected: float) -> bool:
    """Return whether a total exceeds its expected value by more than three standard deviations.

    >>> has_information(3, 0.0), has_information(4, 0.0), has_information(130, 100)
    (False, True, False)
    """
    return total - expected > 3 * (expected + 1) ** 0.5


def vote(sources: Sequence[Counts], weights: Sequence[float] | None = None) -> dict[str, float]:
    """Sum each service's share of the counts of each source; sources without counts do not vote.

    >>> vote([{"cart": 3, "front": 1}, {"cart": 0}, {"front": 2}])
    {'cart': 0.75, 'front': 1.25}
    """
    votes: dict[str, float] = {}
    for counts, weight in zip(sources, weights or [1.0] * len(sources), strict=True):
        total = sum(counts.values())
        for service, count in counts.items():
            votes[service] = votes.get(service, 0.0) + (weight * count / total if total > 0 else 0.0)
    return votes


def excess_over_reference(recent: Counts, reference: Counts, length_ratio: float) -> dict[str, float]:
    """Return each service's counts beyond the reference rate; empty if `has_information` is false."""
    if not has_information(sum(recent.values()), length_ratio * sum(reference.values())):
        return {}
    return log_excess(recent, reference, length_ratio)


@detector(
    "pdiagnose-detector",
    title="PDiagnose (its own detector)",
    paper=_PAPER,
    speed="fast",
    reconstruction=True,
    complexity="O(S·T·n)",
    departures=_DEPARTURES[:2],
)
class PDiagnoseDetector(TrainingFreeBaseline):
    """Detect when several series are anomalous at once and the anomaly queue is denser than in the reference.

    References
    ----------
    Hou et al., Diagnosing performance issues in microservices with heterogeneous data source, ISPA 2021.
    """

    def __init__(self, *, combine: Combine = "or", queue: int = QUEUE, share: float = 0.99) -> None:
        self.combine: Combine = combine
        self.queue = queue
        self.share = share

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the density of the queue."""
        windows = detection_windows(episode)
        if windows.empty:
            return Detection.silent()
        window = wma_window(windows.step_ns / SECOND_NS)
        flags = kpi_flags(
            windows.reference,
            windows.values,
            window=window,
            absent=windows.absent,
            combine=self.combine,
            series=windows.series,
        )
        varying = int(varies(windows.reference).sum())
        features = compute_queue_features(flags, windows.services, self.queue, varying=varying)
        limit = reference_density(
            windows.reference,
            windows.services,
            window=window,
            queue=self.queue,
            share=self.share,
            series=windows.series,
            varying=varying,
        )
        dense = flag_dense_steps(features, limit)
        scores = np.where(dense, features.density, np.minimum(features.density, limit))
        return Detection.from_scores(
            windows.times_ns,
            scores,
            limit,
            consecutive=1,
            evidence=lambda row: _kpi_evidence(windows, flags[max(0, row - self.queue + 1) : row + 1].sum(axis=0)),
        )


@localizer(
    "pdiagnose",
    title="PDiagnose",
    paper=_PAPER,
    kind="named",
    tables=("metrics", "logs", "spans"),
    speed="fast",
    own_detector="pdiagnose-detector",
    reconstruction=True,
    open_settings={
        "steps": (10, 5, 20),
        "combine": ("or", "and"),
        "span_time": ("exclusive", "inclusive"),
        "weights": ((1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (1.0, 2.0, 1.0), (1.0, 1.0, 2.0)),
    },
    complexity="O(S·T·n + L + N)",
    departures=_DEPARTURES,
)
class PDiagnose(TrainingFreeBaseline):
    """Rank services by their shares of anomalous metrics, error lines and slow spans since the alarm.

    Parameters
    ----------
    steps
        Number of samples after the alarm in which evidence counts.
    span_time
        Whether the time of called services counts towards the caller (`inclusive`) or not (`exclusive`).
    weights
        Weights of metrics, logs and traces.

    References
    ----------
    Hou et al., Diagnosing performance issues in microservices with heterogeneous data source, ISPA 2021.
    """

    def __init__(
        self,
        *,
        steps: int = QUEUE,
        combine: Combine = "or",
        span_time: SpanTime = "exclusive",
        weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    ) -> None:
        self.steps = steps
        self.combine: Combine = combine
        self.span_time: SpanTime = span_time
        self.weights = weights

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        # Start one step earlier, because an alarm is at the end of the sample that raised it.
        windows = localization_windows(episode, alarm_ns, before=1)
        time_window = cut_window_after(episode, alarm_ns, windows.step_ns / SECOND_NS, steps=self.steps)
        metric, evidence, first = self._count_metrics(windows, _flag_test_window(episode, windows, self.combine))
        lines = error_line_counts(select_error_lines(episode, levels=False), time_window)
        log = excess_over_reference(*lines, time_window.length_ratio)
        trace, spans = anomalous_spans(episode, time_window, self.span_time)
        votes = vote([metric, log, trace], self.weights)
        # Break ties by the earliest anomaly.
        for service, step in first.items():
            votes[service] = votes.get(service, 0.0) * (1 + 1e-9 / (1 + step))
        evidence += [
            Evidence(service=name, subject="log lines", score=count, detail="keyword lines beyond the usual rate")
            for name, count in sorted(log.items())
            if count > 0
        ]
        return Ranking.of(votes, episode.services, [*evidence, *spans])

    def _count_metrics(self, windows: Windows, flags: Flags) -> tuple[Counts, list[Evidence], dict[str, int]]:
        flags = flags[: self.steps + 1]
        per_series = np.minimum(flags.sum(axis=0), PER_KPI)
        counts: dict[str, float] = {}
        first: dict[str, int] = {}
        for column, service in enumerate(windows.services):
            counts[service] = counts.get(service, 0.0) + float(per_series[column])
            if per_series[column]:
                start = int(flags[:, column].argmax())
                first[service] = min(first.get(service, start), start)
        if not has_information(float(flags.sum()), P0 * flags.size):
            counts = {}
        return counts, _kpi_evidence(windows, per_series), first


def _flag_test_window(episode: EpisodeView, windows: Windows, combine: Combine) -> Flags:
    """Flag values of the test window, with the samples right before each value as its history."""
    since_reference = localization_windows(episode, episode.reference[1], before=0)
    # An alarm within the reference ends the reference, so the test window follows immediately.
    full = since_reference if len(since_reference.values) >= len(windows.values) else windows
    if full.empty:
        return np.zeros(windows.values.shape, dtype=bool)
    flags = kpi_flags(
        full.reference,
        full.values,
        window=wma_window(full.step_ns / SECOND_NS),
        absent=full.absent,
        combine=combine,
        series=full.series,
    )
    return flags[len(flags) - len(windows.values) :]


def _kpi_evidence(windows: Windows, counts: np.ndarray, max_evidence: int = 10) -> list[Evidence]:
    order = [column for column in np.argsort(-counts, kind="stable")[:max_evidence] if counts[column] > 0]
    return series_evidence(windows.series, counts, order, "anomalous samples")


def anomalous_spans(
    episode: EpisodeView, time_window: TimeWindow, span_time: SpanTime
) -> tuple[dict[str, float], list[Evidence]]:
    """Count slow and failed spans per service, in excess of the rate in the reference."""
    spans = read_spans(episode)
    service, operations = attribute_spans(spans), max(1, len(spans.operations))
    group = service * operations + spans.operation
    is_healthy = (spans.start_ns >= time_window.healthy_start_ns) & (spans.start_ns < time_window.healthy_end_ns)
    is_recent = (spans.start_ns >= time_window.start_ns) & (spans.start_ns < time_window.end_ns)
    rows = np.flatnonzero((service >= 0) & (is_healthy | is_recent))
    group, is_healthy, is_recent = group[rows], is_healthy[rows], is_recent[rows]
    times_ns = (spans.own_ns if span_time == "exclusive" else spans.duration_ns.astype(float))[rows]
    abnormal = (times_ns > span_limits(group, times_ns, is_healthy, sigmas=3.0)) | spans.error[rows]
    counts = [
        dict(zip(spans.names, np.bincount(service[rows][abnormal & period], minlength=len(spans.names)), strict=True))
        for period in (is_recent, is_healthy)
    ]
    kinds, number = np.unique(group[abnormal & is_recent], return_counts=True)
    evidence = [
        Evidence(
            service=spans.names[kinds[index] // operations],
            subject=spans.operations[kinds[index] % operations],
            score=float(number[index]),
            detail="slow or failed spans",
        )
        for index in np.argsort(-number, kind="stable")[:5]
    ]
    return excess_over_reference(counts[0], counts[1], time_window.length_ratio), evidence
