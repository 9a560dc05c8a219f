"""PDiagnose: metrics, logs and traces each blame services, and a vote decides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN, OWN_AND_PUBLISHED
from faultset.baselines.api.tables import read_table
from faultset.baselines.features.metric_alarms import (
    Combine,
    Flags,
    kpi_flags,
    queue_features,
    reference_density,
    triggers,
)
from faultset.baselines.features.windows import (
    TimeWindow,
    Windows,
    detection_windows,
    localization_windows,
    window_after,
)
from faultset.baselines.logs.templates import error_line_excess, error_lines
from faultset.baselines.stats.scaling import varies
from faultset.baselines.traces.spans import exclusive_durations, parent_rows, slow_spans
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    import pandas as pd

    from faultset.datasets.views import EpisodeView

QUEUE = 10
PER_KPI = 10
SHORT_STEP_S = 5
SpanTime = Literal["exclusive", "inclusive"]
Counts = Mapping[str, float]
_SPAN_COLUMNS = (
    "time",
    "trace_id",
    "span_id",
    "parent_span_id",
    "service",
    "operation",
    "duration_ns",
    "status",
)
_PAPER = "Hou, Jia, Wu, Li, Han, ISPA 2021"
_DEPARTURES = (
    "Thresholds of the anomaly queue are quantiles of the reference: the paper's table of constants is an image.",
    "Two-sided, and a constant series cannot fire: the tests are strict, and spreads are at least one percent of the "
    "level and a quarter of what the metric has over all services.",
    "Counts become shares of their source before the vote, or the source with most rows would decide alone.",
    "Log lines count in excess of the reference rate; spans by the time not spent in their children.",
)


def wma_window(step_s: float) -> int:
    """Samples of the moving average: ten when they are dense, four otherwise."""
    return 10 if step_s <= SHORT_STEP_S else 4


def vote(sources: Sequence[Counts], weights: Sequence[float] | None = None) -> dict[str, float]:
    """Add up the share that each service has of each source's counts; a source without counts is silent.

    >>> vote([{"cart": 3, "front": 1}, {"cart": 0}, {"front": 2}])
    {'cart': 0.75, 'front': 1.25}
    """
    votes: dict[str, float] = {}
    for counts, weight in zip(sources, weights or [1.0] * len(sources), strict=True):
        total = sum(counts.values())
        for service, count in counts.items():
            votes[service] = votes.get(service, 0.0) + (weight * count / total if total > 0 else 0.0)
    return votes


@baseline(
    "pdiagnose-trigger",
    title="PDiagnose (its own trigger)",
    task="detection",
    paper=_PAPER,
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="fast",
    complexity="O(S·T·n)",
    departures=_DEPARTURES[:2],
)
class PDiagnoseTrigger(Untrained):
    """Detect when several series are anomalous at once in a queue of anomalies denser than the reference's.

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
        moving = int(varies(windows.reference).sum())
        features = queue_features(flags, windows.services, self.queue, moving=moving)
        limit = reference_density(
            windows.reference,
            windows.services,
            window=window,
            queue=self.queue,
            share=self.share,
            series=windows.series,
            moving=moving,
        )
        started = triggers(features, limit)
        scores = np.where(started, features.density, np.minimum(features.density, limit))
        evidence: list[Evidence] = []
        if started.any():
            row = int(started.argmax())
            recent = flags[max(0, row - self.queue + 1) : row + 1].sum(axis=0)
            evidence = _kpi_evidence(windows, recent)
        return Detection.from_scores(windows.times_ns, scores, limit, consecutive=1, evidence=evidence)


@baseline(
    "pdiagnose",
    title="PDiagnose",
    task="localization",
    paper=_PAPER,
    kind="named",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics", "logs", "spans"),
    speed="fast",
    trigger="pdiagnose-trigger",
    complexity="O(S·T·n + L + N)",
    departures=_DEPARTURES,
)
class PDiagnose(Untrained):
    """Rank services by their share of anomalous metrics, of error lines and of slow spans since the alarm.

    Parameters
    ----------
    steps
        Length of the stretch in which evidence is counted, in samples from the alarm on.
    span_time
        Whether time spent in a called service counts for the caller (`inclusive`) or not.
    weights
        Of metrics, logs and traces.

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
        """Rank services by votes."""
        # One step earlier, because an alarm stands at the end of the sample that raised it.
        windows = localization_windows(episode, alarm_ns, before=1)
        time_window = window_after(episode, alarm_ns, windows.step_ns / SECOND_NS, steps=self.steps)
        metric, evidence, first = self._metrics(windows, _flags_since(episode, windows, self.combine))
        log = error_line_excess(error_lines(episode, levels=False), time_window)
        trace, spans = anomalous_spans(episode, time_window, self.span_time)
        votes = vote([metric, log, trace], self.weights)
        # Equal votes go to who was first; the amounts are too small to reorder anything else.
        for service, step in first.items():
            votes[service] = votes.get(service, 0.0) * (1 + 1e-9 / (1 + step))
        evidence += [
            Evidence(service=name, subject="log lines", score=count, detail="keyword lines beyond the usual")
            for name, count in sorted(log.items())
            if count > 0
        ]
        return Ranking.of(votes, episode.services, [*evidence, *spans])

    def _metrics(self, windows: Windows, flags: Flags) -> tuple[Counts, list[Evidence], dict[str, int]]:
        flags = flags[: self.steps + 1]
        per_series = np.minimum(flags.sum(axis=0), PER_KPI)
        counts: dict[str, float] = {}
        first: dict[str, int] = {}
        for column, service in enumerate(windows.services):
            counts[service] = counts.get(service, 0.0) + float(per_series[column])
            if per_series[column]:
                start = int(flags[:, column].argmax())
                first[service] = min(first.get(service, start), start)
        return counts, _kpi_evidence(windows, per_series), first


def _flags_since(episode: EpisodeView, windows: Windows, combine: Combine) -> Flags:
    """Flag the values of the test window, each with the samples right before it as its history."""
    since_reference = localization_windows(episode, episode.reference[1], before=0)
    # An alarm within the reference cuts that short, and the test window follows it at once.
    whole = since_reference if len(since_reference.values) >= len(windows.values) else windows
    if whole.empty:
        return np.zeros(windows.values.shape, dtype=bool)
    flags = kpi_flags(
        whole.reference,
        whole.values,
        window=wma_window(whole.step_ns / SECOND_NS),
        absent=whole.absent,
        combine=combine,
        series=whole.series,
    )
    return flags[len(flags) - len(windows.values) :]


def without_digits(operations: pd.Series) -> pd.Series:
    """Join operations that differ in numbers only, such as queries with a key in their name.

    >>> import pandas as pd
    >>> without_digits(pd.Series(["get_63_2015-04-22", "get_7_2015-04-23"])).tolist()
    ['get_#_#-#-#', 'get_#_#-#-#']
    """
    coded = operations.astype("category")
    names = [re.sub(r"\d+", "#", str(name)) for name in coded.cat.categories]
    return coded.astype(object).map(dict(zip(coded.cat.categories, names, strict=True)))


def _kpi_evidence(windows: Windows, counts: np.ndarray, reported: int = 10) -> list[Evidence]:
    order = np.argsort(-counts, kind="stable")[:reported]
    return [
        Evidence(
            service=windows.series[column][0],
            subject=windows.series[column][1],
            score=float(counts[column]),
            detail="anomalous samples",
        )
        for column in order
        if counts[column] > 0
    ]


def anomalous_spans(
    episode: EpisodeView, time_window: TimeWindow, span_time: SpanTime
) -> tuple[dict[str, float], list[Evidence]]:
    """Count spans per service that are slow for their operation or that failed."""
    import pandas as pd

    table = read_table(episode, "spans", _SPAN_COLUMNS)
    times = table["time"].cast("int64").to_numpy()
    # A parent starts before its children, and what starts later does not matter.
    kept = (times >= time_window.healthy_start_ns) & (times < time_window.end_ns)
    frame = table.filter(kept).unify_dictionaries().to_pandas()
    frame = frame[frame["service"].notna()].drop_duplicates(["trace_id", "span_id"], ignore_index=True)
    if frame.empty:
        return {}, []
    starts = frame["time"].astype("int64").to_numpy()
    durations = frame["duration_ns"].to_numpy(dtype=np.int64)
    measured = durations.astype(float)
    if span_time == "exclusive":
        parents = parent_rows(*(frame[name].to_numpy() for name in ("trace_id", "span_id", "parent_span_id")))
        measured = exclusive_durations(starts, durations, parents)
    frame["operation"] = without_digits(frame["operation"])
    groups = frame.groupby(["service", "operation"], observed=True).ngroup().to_numpy(dtype=np.int64)
    abnormal = slow_spans(groups, measured, starts < time_window.healthy_end_ns)
    abnormal |= (frame["status"] == "error").to_numpy()
    here = frame[abnormal & (starts >= time_window.start_ns)]
    counts = here.groupby(["service", "operation"], observed=True).size()
    evidence = [
        Evidence(service=str(service), subject=str(operation), score=float(count), detail="slow or failed spans")
        for (service, operation), count in counts.sort_values(ascending=False, kind="stable").head(5).items()
    ]
    total = counts.groupby(level="service", observed=True).sum() if len(counts) else pd.Series(dtype=float)
    return {str(service): float(count) for service, count in total.items()}, evidence
