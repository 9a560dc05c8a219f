"""Events, and what changed in the states of objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets.explorer.content.time_grid import TimeGrid
from faultset.datasets.recorded_tables import read_frame
from faultset.datasets.views import EpisodeView

MOST_ROWS = 1_000
_LONGEST = 300


def events(view: EpisodeView, grid: TimeGrid) -> list[dict[str, Any]]:
    """Return the first events of an episode in order of time."""
    columns = ("time", "type", "reason", "kind", "name", "service", "message", "count")
    frame = read_frame(view, "events", columns).head(MOST_ROWS)
    frame = frame.astype(object).where(frame.notna(), None)
    rows = [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
    return [row | {"time": grid.seconds(row["time"])} for row in rows]


def object_changes(view: EpisodeView, grid: TimeGrid) -> list[dict[str, Any]]:
    """Return when objects appeared, changed or were not seen any more, with the fields that changed."""
    frame = read_frame(view, "objects", ("time", "kind", "name", "service", "state"))
    if frame.empty:
        return []
    frame = frame.sort_values(["kind", "name", "time"], kind="stable", ignore_index=True)
    for name in ("kind", "service"):
        frame[name] = frame[name].astype(object)
    frame = frame.where(frame.notna(), None)
    same = (frame["kind"] == frame["kind"].shift()) & (frame["name"] == frame["name"].shift())
    before = frame["state"].shift()
    interval_ns = (view.context.source_intervals_s.get("objects") or 10.0) * SECOND_NS
    late = frame["time"].astype(np.int64) > view.window[0] + 1.5 * interval_ns
    changed = same & (before != frame["state"])
    last = frame[~same.shift(-1, fill_value=False)]
    gone = last[last["time"].astype(np.int64) < view.window[1] - 2.5 * interval_ns]
    rows = [_change(frame.loc[number], before[number], grid) for number in frame.index[changed]]
    rows += [_row(one, grid) | {"what": "appeared", "fields": []} for _, one in frame[~same & late].iterrows()]
    rows += [_row(one, grid) | {"what": "last seen", "fields": []} for _, one in gone.iterrows()]
    return sorted(rows, key=lambda row: row["time"])[:MOST_ROWS]


def _row(row: pd.Series, grid: TimeGrid) -> dict[str, Any]:
    return {"time": grid.seconds(row["time"]), "kind": row["kind"], "name": row["name"], "service": row["service"]}


def _change(row: pd.Series, before: str, grid: TimeGrid) -> dict[str, Any]:
    old, new = _fields(before), _fields(row["state"])
    fields = [
        [key, _text(old.get(key)), _text(new.get(key))]
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    return _row(row, grid) | {"what": "changed", "fields": fields}


def _fields(state: str) -> Mapping[str, Any]:
    found = json.loads(state)
    return _flat("", found) if isinstance(found, dict) else {"": found}


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    """Return nested fields under dotted names."""
    if isinstance(value, dict) and value:
        return {name: one for key, inner in value.items() for name, one in _flat(f"{prefix}.{key}", inner).items()}
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        named = {str(one.get("name", place)): one for place, one in enumerate(value)}
        return _flat(prefix, named)
    return {prefix.removeprefix("."): value}


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_LONGEST]
