"""The map of services: who calls whom, and how well calls to each go over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.explorer.content.time_grid import TimeGrid, rounded
from faultset.datasets.recorded_tables import read_table
from faultset.datasets.status_codes import is_error_code
from faultset.datasets.training.tables import service_calls
from faultset.datasets.views import EpisodeView

NO_CALLS, OK, SLOW, FAILING, SILENT = range(5)
"""States of a service in one step."""
FAILING_SHARE = 0.05
SLOW_FACTOR = 2.0
"""How much slower than in nine tenths of the reference's steps is called slow."""
EXPECTED_CALLS = 5.0
"""So many calls must have been expected in vain before a service is called silent."""
_SPANS = ("time", "service", "kind", "duration_ns", "status", "status_code")
Floats = npt.NDArray[np.float64]


def service_map(view: EpisodeView, grid: TimeGrid) -> dict[str, Any]:
    """Return services with their place on the map and their state in every step, and the calls between them.

    The state of a service is judged from calls to it as its callers saw them. Where nobody's calls to it were recorded,
    as for the entry, it is judged from its own answers.
    """
    calls = service_calls(view)
    ends = calls["edge"].str.split("->", n=1, expand=True).reindex(columns=[0, 1])
    calls = calls.assign(caller=ends[0], service=ends[1])
    answers = _answers(view)
    seen = set(calls["service"].dropna())
    rows = pd.concat(
        [calls[["service", "end", "seconds", "failed"]], answers[~answers["service"].isin(seen)]], ignore_index=True
    )
    rows["step"] = grid.cells(rows["end"].to_numpy(dtype=np.int64))
    groups = dict(iter(rows.groupby("service")))
    edges = calls.groupby(["caller", "service"]).size() if len(calls) else pd.Series(dtype=int)
    declared = dict.fromkeys(view.calls)
    found = [(str(caller), str(callee)) for caller, callee in edges.index]
    pairs = list(dict.fromkeys([*declared, *found]))
    names = list(dict.fromkeys([*view.services, *(name for pair in pairs for name in pair)]))
    places = layered(names, pairs, view.context.workload_entry)
    split = max(1, min(grid.steps, int((view.reference[1] - grid.start_ns) / SECOND_NS / grid.step_s)))
    return {
        "nodes": [
            {"name": name, "layer": places[name][0], "place": places[name][1]} | _health(groups.get(name), grid, split)
            for name in names
        ],
        "edges": [
            {"from": caller, "to": callee, "calls": int(edges.get((caller, callee), 0))} for caller, callee in pairs
        ],
    }


def _answers(view: EpisodeView) -> pd.DataFrame:
    table = read_table(view, "spans", _SPANS)
    text = {
        name: table[name].cast(pa.string()).to_numpy(zero_copy_only=False) for name in ("service", "kind", "status")
    }
    frame = pd.DataFrame(text)
    frame["end"] = table["time"].cast(pa.int64()).to_numpy() + table["duration_ns"].to_numpy()
    frame["seconds"] = table["duration_ns"].to_numpy() / 1e9
    code = table["status_code"].fill_null(0).to_numpy()
    frame["failed"] = ((frame["status"] == "error") | is_error_code(code)).astype(float)
    return frame.loc[(frame["kind"] == "server") & frame["service"].notna(), ["service", "end", "seconds", "failed"]]


def _health(rows: pd.DataFrame | None, grid: TimeGrid, split: int) -> dict[str, Any]:
    """Return state, calls, failed calls and mean milliseconds in every step."""
    if rows is None or rows.empty:
        nothing = [0] * grid.steps
        return {"state": nothing, "calls": nothing, "failed": nothing, "ms": [None] * grid.steps}
    step = rows["step"].to_numpy()
    calls = np.bincount(step, minlength=grid.steps).astype(float)
    failed = np.bincount(step, rows["failed"].to_numpy(), minlength=grid.steps).astype(float)
    total = np.bincount(step, rows["seconds"].to_numpy() * 1e3, minlength=grid.steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / calls
    return {
        "state": states(calls, failed, mean, split).tolist(),
        "calls": calls.astype(int).tolist(),
        "failed": failed.astype(int).tolist(),
        "ms": rounded(mean),
    }


def states(calls: Floats, failed: Floats, mean: Floats, split: int) -> npt.NDArray[np.int64]:
    """Judge every step of one service by its calls, failed calls and mean duration.

    Parameters
    ----------
    calls, failed, mean
        One number for each step; the mean is NaN where there were no calls.
    split
        Steps of the reference, with which later ones are compared.
    """
    state = np.where(calls > 0, OK, NO_CALLS)
    known = mean[:split][~np.isnan(mean[:split])]
    if len(known):
        with np.errstate(invalid="ignore"):
            state[(calls > 0) & (mean > SLOW_FACTOR * np.quantile(known, 0.9))] = SLOW
    state[(calls > 0) & (failed >= FAILING_SHARE * calls) & (failed > 0)] = FAILING
    usual = calls[:split].mean()
    if usual > 0:
        width = max(int(np.ceil(EXPECTED_CALLS / usual)), 1 + _longest_pause(calls[:split]))
        sums = np.concatenate([np.zeros(width), np.cumsum(calls)])
        quiet = sums[width:] - sums[:-width] == 0
        quiet[:width] = False
        state[quiet] = SILENT
    return state


def _longest_pause(calls: Floats) -> int:
    """Return the number of steps in the longest stretch without a call."""
    there = np.flatnonzero(np.concatenate([[1.0], calls, [1.0]]))
    return int(np.diff(there).max()) - 1


def layered(names: Sequence[str], calls: Sequence[tuple[str, str]], entry: str) -> Mapping[str, tuple[int, int]]:
    """Place services in layers by their distance from the entry, each near its callers.

    Examples
    --------
    >>> dict(layered(["a", "b", "c", "lonely"], [("a", "b"), ("b", "c")], "a"))
    {'a': (0, 0), 'b': (1, 0), 'c': (2, 0), 'lonely': (3, 0)}
    """
    callees: dict[str, list[str]] = defaultdict(list)
    for caller, callee in calls:
        callees[caller].append(callee)
    called = {callee for _, callee in calls}
    depth: dict[str, int] = {}
    front = [entry] if entry in names else []
    front += [name for name in names if name not in called and callees[name] and name != entry]
    level = 0
    while front:
        depth |= dict.fromkeys(front, level)
        level += 1
        front = list(dict.fromkeys(callee for name in front for callee in callees[name] if callee not in depth))
    last = level
    layers: dict[int, list[str]] = defaultdict(list)
    for name in names:
        layers[depth.get(name, last)].append(name)
    found: dict[str, tuple[int, int]] = {}
    for number in sorted(layers):
        above = {
            name: [found[caller][1] for caller, callee in calls if callee == name and caller in found]
            for name in layers[number]
        }
        middle = {name: sum(places) / len(places) if places else 0.0 for name, places in above.items()}
        for place, name in enumerate(sorted(layers[number], key=lambda name: middle[name])):
            found[name] = (number, place)
    return found
