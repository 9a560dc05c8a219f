"""ShapleyIQ: divide the delay of slow requests among services by Shapley values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline, largest_first
from faultset.baselines.features.abnormal_traces import classify_traces_at_alarm
from faultset.baselines.features.spans import Ints, Spans, attribute_spans, read_spans
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.datasets.views import EpisodeView

_MILLISECOND_NS = 1e6


@dataclass(frozen=True, kw_only=True)
class Segments:
    """[n] intervals in which a span runs without its callees."""

    row: Ints
    """Span."""
    start_ns: Ints
    end_ns: Ints


def split_spans(starts_ns: Ints, durations_ns: Ints, parents: Ints) -> Segments:
    """Split each span at the calls within it.

    Parameters
    ----------
    parents
        Row of each span's parent, or -1.

    Examples
    --------
    >>> segments = split_spans(np.array([0, 2, 6]), np.array([10, 3, 2]), np.array([-1, 0, 0]))
    >>> list(zip(segments.row.tolist(), segments.start_ns.tolist(), segments.end_ns.tolist(), strict=True))
    [(0, 0, 2), (0, 5, 6), (0, 8, 10), (1, 2, 5), (2, 6, 8)]
    """
    ends_ns = starts_ns + durations_ns
    children = np.flatnonzero(parents >= 0)
    owner = parents[children]
    start = np.clip(starts_ns[children], starts_ns[owner], ends_ns[owner])
    end = np.clip(ends_ns[children], starts_ns[owner], ends_ns[owner])
    # Add a child of length 0 at the end of each span.
    rows = np.arange(len(starts_ns))
    owner, start, end = np.append(owner, rows), np.append(start, ends_ns), np.append(end, ends_ns)
    order = np.lexsort([end, start, owner])
    owner, start, end = owner[order], start[order], end[order]
    # Offsets separate the families, so that one running maximum handles all of them.
    offset = owner * (int(durations_ns.max(initial=0)) + 1) - starts_ns[owner]
    reached = np.maximum.accumulate(end + offset)
    is_first = np.diff(owner, prepend=-1) != 0
    previous_end = np.where(is_first, starts_ns[owner], np.append(0, reached[:-1]) - offset)
    has_length = start > previous_end
    return Segments(row=owner[has_length], start_ns=previous_end[has_length], end_ns=start[has_length])


def share_delays(traces: Ints, ends_ns: Matrix, delays_ns: Matrix) -> Matrix:
    """Return the Shapley value of each delay: its share of the time that its request would save without delays.

    A delay occupies the end of its segment. Where delays of one trace overlap, each of k gets a k-th of the time, since
    the request only becomes faster if all of them are removed.

    Parameters
    ----------
    traces
        Trace of each delay.
    ends_ns, delays_ns
        End and length of each delay.

    Examples
    --------
    Two parallel calls, delayed by 6 until 10 and by 2 until 9, and a later one delayed by 3 until 14:

    >>> share_delays(np.array([0, 0, 0]), np.array([10.0, 9.0, 14.0]), np.array([6.0, 2.0, 3.0])).tolist()
    [5.0, 1.0, 3.0]
    """
    if not len(traces):
        return np.zeros(0)
    count = len(traces)
    time = np.concatenate([ends_ns - delays_ns, ends_ns])
    step = np.concatenate([np.ones(count, dtype=int), -np.ones(count, dtype=int)])
    order = np.lexsort([time, np.tile(traces, 2)])
    active = np.cumsum(step[order])[:-1]
    # Between traces nothing is active.
    lengths = np.where(active > 0, np.diff(time[order]), 0.0)
    shared = np.concatenate([[0.0], np.cumsum(lengths / np.maximum(active, 1))])
    reached = np.empty(2 * count)
    reached[order] = shared
    return reached[count:] - reached[:count]


@localizer(
    "shapley-iq",
    title="ShapleyIQ",
    paper="Li et al., ShapleyIQ, ASPLOS 2023",
    tables=("spans",),
    complexity="O(N·log N)",
    departures=(
        "Only abnormal traces are used, classified as for `microrank`.",
        "Successive segments are not merged before delays are shared; merging keeps their sum and changes how parallel "
        "chains overlap.",
        "A kind of span without healthy spans has no delay; the published code counts its whole duration.",
        "A call without a response is attributed to the called service.",
    ),
)
class ShapleyIQ(TrainingFreeBaseline):
    """Rank services by their share of the delay of abnormal requests, as Shapley values.

    Parameters
    ----------
    sigmas
        A trace is too long if it exceeds the sum of mean + `sigmas` sd over its operations.
    before
        Steps before the alarm at which the test window begins.

    References
    ----------
    Li et al., ShapleyIQ: influence quantification by Shapley values for performance debugging of microservices,
    ASPLOS 2023.
    """

    def __init__(self, *, sigmas: float = 1.5, before: int = 2) -> None:
        self.sigmas = sigmas
        self.before = before

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        spans = read_spans(episode)
        if not len(spans):
            return Ranking.abstain()
        health = classify_traces_at_alarm(episode, alarm_ns, before=self.before, sigmas=self.sigmas)
        if not health.abnormal.any():
            return Ranking.abstain()
        segments, delays_ns = _measure_delays(spans, min(episode.reference[1], alarm_ns))
        chosen = np.flatnonzero(health.abnormal[spans.trace[segments.row]] & (delays_ns > 0))
        rows = segments.row[chosen]
        # As floats, times since the epoch would lose nanoseconds.
        ends_ns = (segments.end_ns[chosen] - episode.window[0]).astype(float)
        value_ns = share_delays(spans.trace[rows], ends_ns, delays_ns[chosen])
        owner = attribute_spans(spans)[rows]
        inside = owner >= 0
        total_ns = np.bincount(owner[inside], weights=value_ns[inside], minlength=len(spans.names))
        mean_ms = total_ns / int(health.abnormal.sum()) / _MILLISECOND_NS
        scores = dict(zip(spans.names, mean_ms.tolist(), strict=True))
        evidence = [
            Evidence(
                service=name, subject="requests", score=scores[name], detail="ms of the delay of abnormal requests"
            )
            for name in largest_first(scores)[:10]
            if scores[name] > 0
        ]
        return Ranking.of(scores, episode.services, evidence)


def _measure_delays(spans: Spans, healthy_end_ns: int) -> tuple[Segments, Matrix]:
    """Return the segments of all spans and the delay of each, at most its length.

    The delay of a span, beyond the healthy mean of its kind, is spread over its duration.
    """
    kind = distinct((spans.service + 1) * (len(spans.operations) + 1) + spans.operation).code
    size = int(kind.max()) + 1
    healthy = np.flatnonzero(spans.end_ns < healthy_end_ns)
    count = np.bincount(kind[healthy], minlength=size)
    mean = np.bincount(kind[healthy], weights=spans.duration_ns[healthy], minlength=size) / np.maximum(count, 1)
    usual_ns = np.where(count > 0, mean, np.inf)[kind]
    segments = split_spans(spans.start_ns, spans.duration_ns, spans.parent)
    share = np.maximum(spans.duration_ns - usual_ns, 0.0) / np.maximum(spans.duration_ns, 1)
    return segments, share[segments.row] * (segments.end_ns - segments.start_ns)
