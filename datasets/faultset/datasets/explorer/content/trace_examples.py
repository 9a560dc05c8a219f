"""A few traces of an episode, those that failed and those that took longest, span by span."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from faultset.datasets.explorer.content.time_grid import TimeGrid, rounded
from faultset.datasets.recorded_tables import read_frame
from faultset.datasets.status_codes import is_error_code
from faultset.datasets.views import EpisodeView

MOST_TRACES = 30
"""Of each of the two kinds."""
MOST_SPANS = 300
_COLUMNS = (
    "time", "trace_id", "span_id", "parent_span_id", "service", "peer_service", "operation", "kind", "duration_ns",
    "status", "status_code",
)  # fmt: skip


def trace_examples(view: EpisodeView, grid: TimeGrid) -> dict[str, Any] | None:
    """Return failing traces, spread over the time, and the slowest of the others; None without spans."""
    spans = read_frame(view, "spans", _COLUMNS)
    if spans.empty:
        return None
    spans["end"] = spans["time"] + spans["duration_ns"]
    spans["failed"] = (spans["status"].astype(str) == "error") | is_error_code(spans["status_code"].fillna(0))
    traces = spans.groupby("trace_id", sort=False).agg(
        start=("time", "min"), end=("end", "max"), spans=("time", "size"), failed=("failed", "sum")
    )
    traces["ns"] = traces["end"] - traces["start"]
    failing = traces[traces["failed"] > 0].sort_values("start")
    if len(failing) > MOST_TRACES:
        failing = failing.iloc[np.unique(np.linspace(0, len(failing) - 1, MOST_TRACES).astype(int))]
    slow = traces[traces["failed"] == 0].nlargest(MOST_TRACES, "ns")
    chosen = [*failing.index, *slow.index]
    groups = dict(iter(spans[spans["trace_id"].isin(set(chosen))].groupby("trace_id")))
    return {
        "total": len(traces),
        "failing": int((traces["failed"] > 0).sum()),
        "traces": [_trace(str(trace), traces.loc[trace], groups[trace], grid) for trace in chosen],
    }


def _trace(trace: str, facts: pd.Series, spans: pd.DataFrame, grid: TimeGrid) -> dict[str, Any]:
    start = int(facts["start"])
    kept = spans.head(MOST_SPANS)
    place = {span: number for number, span in enumerate(kept["span_id"])}
    parent = [place.get(one) if one is not None else None for one in kept["parent_span_id"]]
    texts = {name: kept[name].astype(object).where(kept[name].notna(), None).tolist() for name in _TEXTS}
    begin = rounded((kept["time"].to_numpy() - start) / 1e6)
    length = rounded(kept["duration_ns"].to_numpy() / 1e6)
    code = [None if pd.isna(value) else int(value) for value in kept["status_code"]]
    depth = _depths(parent)
    return {
        "id": trace,
        "at": grid.seconds(start),
        "ms": rounded(np.array([facts["ns"] / 1e6]))[0],
        "count": int(facts["spans"]),
        "failed": int(facts["failed"]),
        "spans": [
            [
                depth[n], texts["service"][n], texts["operation"][n], texts["kind"][n], texts["peer_service"][n],
                begin[n], length[n], texts["status"][n], code[n],
            ]
            for n in _in_order(parent, len(kept))
        ],
    }  # fmt: skip


_TEXTS = ("service", "operation", "kind", "peer_service", "status")


def _in_order(parent: list[int | None], count: int) -> list[int]:
    """Return spans, each before its children in order of time; none twice, whatever the parents say."""
    children: dict[int | None, list[int]] = {}
    for number in range(count):
        children.setdefault(parent[number], []).append(number)
    order: list[int] = []
    seen: set[int] = set()
    for first in [*children.get(None, []), *range(count)]:
        stack = [first]
        while stack:
            number = stack.pop()
            if number not in seen:
                seen.add(number)
                order.append(number)
                stack += reversed(children.get(number, []))
    return order


def _depths(parent: list[int | None]) -> list[int]:
    """Return how deep each span lies; parents that form a circle end at their number."""
    depths = []
    for number in range(len(parent)):
        depth, above = 0, parent[number]
        while above is not None and depth < len(parent):
            depth, above = depth + 1, parent[above]
        depths.append(min(depth, 40))
    return depths
