"""Select log templates, events, changes of objects and example traces for the explorer."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.explorer.health import TimeGrid, round_values
from faultset.datasets.log_masks import mask_column
from faultset.datasets.status_codes import is_error_code
from faultset.datasets.views import EpisodeView, read_frame, read_table

MAX_TEMPLATES = 150
EXAMPLES = 3
MAX_LINE_CHARACTERS = 600
"""Longer templates and example lines are truncated."""
_ERROR_LEVELS = ("error", "fatal")


def log_lines_by_kind(view: EpisodeView, grid: TimeGrid) -> dict[str, Any] | None:
    """Count log lines by level and template; return None if there are none.

    If there are many templates, keep templates of errors, new templates, and templates whose rate changed most.
    """
    table = read_table(view, "logs", ("time", "service", "level", "message"))
    if not len(table):
        return None
    frame = pd.DataFrame(
        {
            "time": table["time"].cast(pa.int64()).to_numpy(),
            "service": table["service"].cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False),
            "level": table["level"].cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False),
            "template": mask_column(table["message"]).to_numpy(zero_copy_only=False),
            "row": np.arange(len(table)),
        }
    ).sort_values("time", kind="stable", ignore_index=True)
    frame["step"] = grid.steps_at(frame["time"].to_numpy())
    level = frame["level"]
    kinds = {"error": level.isin(_ERROR_LEVELS), "warning": level == "warning"}
    kinds["other"] = ~kinds["error"] & ~kinds["warning"]
    levels = {name: np.bincount(frame.loc[rows, "step"], minlength=grid.steps).tolist() for name, rows in kinds.items()}
    templates, left_out = _select_templates(frame, table["message"], view, grid)
    return {"levels": levels, "templates": templates, "left_out": left_out}


def _select_templates(
    frame: pd.DataFrame, messages: pa.ChunkedArray, view: EpisodeView, grid: TimeGrid
) -> tuple[list[dict[str, Any]], int]:
    start_ns, split_ns = view.reference
    keys = ["service", "level", "template"]
    frame = frame.assign(before=frame["time"] < split_ns, number=frame.groupby(keys, sort=False).ngroup())
    groups = frame.groupby("number").agg(
        service=("service", "first"),
        level=("level", "first"),
        template=("template", "first"),
        lines=("time", "size"),
        before=("before", "sum"),
        first=("time", "first"),
    )
    ratio = (view.window[1] - split_ns) / max(split_ns - start_ns, 1)
    after = groups["lines"] - groups["before"]
    change = np.abs(np.log((after + 1) / (groups["before"] * ratio + 1)))
    groups = groups.assign(change=change, bad=groups["level"].isin(_ERROR_LEVELS), new=groups["before"] == 0)
    chosen = groups.sort_values(["bad", "new", "change", "lines"], ascending=False, kind="stable").head(MAX_TEMPLATES)
    chosen_lines = frame[frame["number"].isin(chosen.index)]
    by_number: dict[Hashable, pd.DataFrame] = dict(iter(chosen_lines.groupby("number")))
    rows = []
    for number, row in chosen.iterrows():
        lines = by_number[number]
        spread = np.unique(np.linspace(0, len(lines) - 1, EXAMPLES).astype(int))
        rows.append(
            {
                "service": row["service"],
                "level": row["level"],
                "text": row["template"][:MAX_LINE_CHARACTERS],
                "lines": int(row["lines"]),
                "before": int(row["before"]),
                "first": grid.seconds(int(row["first"])),
                "change": round(float(row["change"]), 3),
                "counts": np.bincount(lines["step"], minlength=grid.steps).tolist(),
                "examples": [
                    [grid.seconds(int(lines["time"].iloc[index])), _read_line(messages, int(lines["row"].iloc[index]))]
                    for index in spread
                ],
            }
        )
    return rows, len(groups) - len(chosen)


def _read_line(messages: pa.ChunkedArray, row: int) -> str:
    return messages[row].as_py()[:MAX_LINE_CHARACTERS]


MAX_ROWS = 1_000
_MAX_TEXT_LENGTH = 300


def events(view: EpisodeView, grid: TimeGrid) -> list[dict[str, Any]]:
    columns = ("time", "type", "reason", "kind", "name", "service", "message", "count")
    frame = read_frame(view, "events", columns).head(MAX_ROWS)
    frame = frame.astype(object).where(frame.notna(), None)
    rows = [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
    return [row | {"time": grid.seconds(row["time"])} for row in rows]


def object_changes(view: EpisodeView, grid: TimeGrid) -> list[dict[str, Any]]:
    """Return when objects appeared, changed or were last seen before they disappeared, with the changed fields."""
    frame = read_frame(view, "objects", ("time", "kind", "name", "service", "state"))
    if frame.empty:
        return []
    frame = frame.sort_values(["kind", "name", "time"], kind="stable", ignore_index=True)
    for name in ("kind", "service"):
        frame[name] = frame[name].astype(object)
    frame = frame.where(frame.notna(), None)
    is_same = (frame["kind"] == frame["kind"].shift()) & (frame["name"] == frame["name"].shift())
    before = frame["state"].shift()
    interval_ns = (view.context.source_intervals_s.get("objects") or 10.0) * SECOND_NS
    is_late = frame["time"].astype(np.int64) > view.window[0] + 1.5 * interval_ns
    is_changed = is_same & (before != frame["state"])
    last = frame[~is_same.shift(-1, fill_value=False)]
    gone = last[last["time"].astype(np.int64) < view.window[1] - 2.5 * interval_ns]
    rows = [_describe_change(frame.loc[number], before[number], grid) for number in frame.index[is_changed]]
    rows += [
        _build_row(row, grid) | {"what": "appeared", "fields": []} for _, row in frame[~is_same & is_late].iterrows()
    ]
    rows += [_build_row(row, grid) | {"what": "last seen", "fields": []} for _, row in gone.iterrows()]
    return sorted(rows, key=lambda row: row["time"])[:MAX_ROWS]


def _build_row(row: pd.Series, grid: TimeGrid) -> dict[str, Any]:
    return {"time": grid.seconds(row["time"]), "kind": row["kind"], "name": row["name"], "service": row["service"]}


def _describe_change(row: pd.Series, before: str, grid: TimeGrid) -> dict[str, Any]:
    old, new = _read_fields(before), _read_fields(row["state"])
    fields = [
        [key, _format_value(old.get(key)), _format_value(new.get(key))]
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    return _build_row(row, grid) | {"what": "changed", "fields": fields}


def _read_fields(state: str) -> Mapping[str, Any]:
    value = json.loads(state)
    return flat_fields("", value) if isinstance(value, dict) else {"": value}


def flat_fields(prefix: str, value: Any) -> dict[str, Any]:
    """Return nested fields under dotted names."""
    if isinstance(value, dict) and value:
        inside = [flat_fields(f"{prefix}.{key}", inner) for key, inner in value.items()]
        return {name: leaf for fields in inside for name, leaf in fields.items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        by_name = {str(item.get("name", index)): item for index, item in enumerate(value)}
        return flat_fields(prefix, by_name)
    return {prefix.removeprefix("."): value}


def _format_value(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_MAX_TEXT_LENGTH]


MAX_TRACES = 30
"""Maximum number of failing traces; the same limit applies to slow traces."""
MAX_SPANS = 300
_COLUMNS = (
    "time", "trace_id", "span_id", "parent_span_id", "service", "peer_service", "operation", "kind", "duration_ns",
    "status", "status_code",
)  # fmt: skip


def trace_examples(view: EpisodeView, grid: TimeGrid) -> dict[str, Any] | None:
    """Return failing traces, spread over the view, and the slowest of the others; None if the episode has no spans."""
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
    if len(failing) > MAX_TRACES:
        failing = failing.iloc[np.unique(np.linspace(0, len(failing) - 1, MAX_TRACES).astype(int))]
    slow = traces[traces["failed"] == 0].nlargest(MAX_TRACES, "ns")
    chosen = [*failing.index, *slow.index]
    groups = dict(iter(spans[spans["trace_id"].isin(set(chosen))].groupby("trace_id")))
    return {
        "total": len(traces),
        "failing": int((traces["failed"] > 0).sum()),
        "traces": [_describe_trace(str(trace), traces.loc[trace], groups[trace], grid) for trace in chosen],
    }


def _describe_trace(trace: str, facts: pd.Series, spans: pd.DataFrame, grid: TimeGrid) -> dict[str, Any]:
    start = int(facts["start"])
    first = spans.head(MAX_SPANS)
    numbers = {span: number for number, span in enumerate(first["span_id"])}
    parent = [numbers.get(span) if span is not None else None for span in first["parent_span_id"]]
    texts = {name: first[name].astype(object).where(first[name].notna(), None).tolist() for name in _TEXTS}
    offsets_ms = round_values((first["time"].to_numpy() - start) / 1e6)
    lengths_ms = round_values(first["duration_ns"].to_numpy() / 1e6)
    code = [None if pd.isna(value) else int(value) for value in first["status_code"]]
    depth = _compute_depths(parent)
    return {
        "id": trace,
        "at": grid.seconds(start),
        "ms": round_values(np.array([facts["ns"] / 1e6]))[0],
        "count": int(facts["spans"]),
        "failed": int(facts["failed"]),
        "spans": [
            [
                depth[n], texts["service"][n], texts["operation"][n], texts["kind"][n], texts["peer_service"][n],
                offsets_ms[n], lengths_ms[n], texts["status"][n], code[n],
            ]
            for n in _order_spans(parent, len(first))
        ],
    }  # fmt: skip


_TEXTS = ("service", "operation", "kind", "peer_service", "status")


def _order_spans(parent: list[int | None], count: int) -> list[int]:
    """Return each span once, followed by its children in time order; cycles of parents are tolerated."""
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


def _compute_depths(parent: list[int | None]) -> list[int]:
    """Return the depth of each span in its trace; cycles of parents are tolerated."""
    depths = []
    for number in range(len(parent)):
        depth, above = 0, parent[number]
        while above is not None and depth < len(parent):
            depth, above = depth + 1, parent[above]
        depths.append(min(depth, 40))
    return depths
