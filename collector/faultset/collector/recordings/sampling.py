"""Choose which spans and log lines of a recording are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as arrow_compute

from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import Sampling

# type checkers do not see the module's functions, which are created at import
pc: Any = arrow_compute


def select_traces(spans: pa.Table, sampling: Sampling) -> pa.Array:
    """Return the ids of the traces to keep: the sample and, if `slow_traces_s` is set, failed and slow traces.

    Parameters
    ----------
    spans
        All spans of the traces, with `trace_id`, `duration_ns` and `status`.
    """
    ids = spans["trace_id"]
    trace_ids = ids.unique().to_pylist()
    kept_ids = {trace for trace in trace_ids if sampling.samples(trace)}
    if sampling.slow_traces_s is not None:
        failed = pc.equal(spans["status"].cast(pa.string()), "error")
        slow = pc.greater_equal(spans["duration_ns"], round(sampling.slow_traces_s * SECOND_NS))
        kept_ids |= set(ids.filter(pc.or_(failed, slow)).to_pylist())
    return pa.array(sorted(kept_ids), pa.string())


def sample_spans(spans: pa.Table, sampling: Sampling, start_ns: int, end_ns: int) -> pa.Table:
    """Return the spans that start in a window and belong to kept traces.

    Parameters
    ----------
    spans
        Spans of a window that extends beyond both ends, so that traces are complete.
    """
    times = spans["time"].cast(pa.int64()).to_numpy()
    window_spans = spans.filter(pa.array((times >= start_ns) & (times < end_ns)))
    if sampling.traces >= 1:
        return window_spans
    return window_spans.filter(pc.is_in(window_spans["trace_id"], value_set=select_traces(spans, sampling)))


def sample_logs(logs: pa.Table, sampling: Sampling) -> pa.Table:
    """Return the log lines of the kept levels; lines without a level are kept."""
    if not sampling.log_levels:
        return logs
    levels = logs["level"].cast(pa.string())
    keep = pc.or_kleene(pc.is_null(levels), pc.is_in(levels, value_set=pa.array(sampling.log_levels)))
    return logs.filter(keep)


def request_counts(scheduled_ns: np.ndarray, start_ns: int, end_ns: int, step_ns: int) -> list[tuple[int, int, int]]:
    """Return the start, the end and the number of due requests of each step of a window."""
    edges = [*range(start_ns, end_ns, step_ns), end_ns]
    counts, _ = np.histogram(scheduled_ns, edges)
    return [(edges[index], edges[index + 1], int(count)) for index, count in enumerate(counts)]
