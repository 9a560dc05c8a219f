"""Which traces are abnormal: those that took longer than their operations explain, or have an unexpected error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.stats.scaling import Matrix
from faultset.baselines.traces.slow_spans import SD_FLOOR, Ints
from faultset.baselines.traces.spans import Flags, Spans

HEALTHY_ERROR_LIMIT = 0.1


@dataclass(frozen=True, kw_only=True)
class TraceHealth:
    """[traces] which traces belong to the healthy part, which to the test window, and which of these went wrong."""

    healthy: Flags
    in_test_window: Flags
    abnormal: Flags
    """A test trace that took longer than its operations explain, or failed as it does not when healthy."""


def trace_start_ns(spans: Spans) -> Ints:
    """[traces] start of the first span of each trace."""
    began = np.full(spans.traces, np.iinfo(np.int64).max)
    np.minimum.at(began, spans.trace, spans.start_ns)
    return began


def trace_health(spans: Spans, healthy_end_ns: int, start_ns: int, *, sigmas: float = 1.5) -> TraceHealth:
    """Judge whole traces: too long is more than the sum over its operations of mean + `sigmas` sd.

    Means are of the time that an operation spends itself, and are taken over spans that ended before
    `healthy_end_ns`. Operations that were not seen by then are not held against a trace.
    A trace is in the test window when it began at or after `start_ns`.
    """
    count = spans.traces
    began = trace_start_ns(spans)
    ended = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(ended, spans.trace, spans.end_ns)
    known = spans.end_ns < healthy_end_ns
    group = distinct(spans.service * len(spans.operations) + spans.operation).code
    own = spans.own_ns
    limit = span_limits(group, own, known, sigmas=sigmas)
    allowed = np.bincount(spans.trace, weights=np.where(np.isfinite(limit), limit, own), minlength=count)
    # Where spans are missing, a trace is longer than what is left of it; nor is its length then held against it.
    took = np.minimum(ended - began, np.bincount(spans.trace, weights=own, minlength=count))
    abnormal_error = spans.error & (healthy_share(group, spans.error, known) < HEALTHY_ERROR_LIMIT)
    failed = np.bincount(spans.trace, weights=abnormal_error, minlength=count) > 0
    in_test_window = began >= start_ns
    return TraceHealth(
        healthy=ended < healthy_end_ns,
        in_test_window=in_test_window,
        abnormal=in_test_window & (failed | (took > allowed)),
    )


def span_limits(groups: Ints, durations: Matrix, known: Flags, *, sigmas: float) -> Matrix:
    """Mean + `sigmas` sd of each row's group over the known rows; infinite for a group without any."""
    size = int(groups.max()) + 1 if len(groups) else 0
    there = groups[known]
    count = np.bincount(there, minlength=size)
    mean = np.bincount(there, weights=durations[known], minlength=size) / np.maximum(count, 1)
    squares = np.bincount(there, weights=(durations[known] - mean[there]) ** 2, minlength=size)
    sd = np.maximum(np.sqrt(squares / np.maximum(count - 1, 1)), SD_FLOOR * mean)
    return np.where(count > 0, mean + sigmas * sd, np.inf)[groups]


def healthy_share(groups: Ints, flags: Flags, known: Flags) -> Matrix:
    """Share of flagged rows of each row's group among the known ones; 0 for a group without any."""
    size = int(groups.max()) + 1 if len(groups) else 0
    count = np.bincount(groups[known], minlength=size)
    hits = np.bincount(groups[known], weights=flags[known], minlength=size)
    return (hits / np.maximum(count, 1))[groups]
