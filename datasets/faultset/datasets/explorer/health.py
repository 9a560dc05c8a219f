"""Compute the health of services and clients over a view, in equal time steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.status_codes import is_error_code
from faultset.datasets.training.columns import service_calls
from faultset.datasets.views import EpisodeView, read_frame, read_table, read_wide

MAX_STEPS = 480
"""Maximum number of steps; more than a screen can show."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TimeGrid:
    """Equal time steps over a view."""

    start_ns: int
    """Start of the view, UTC nanoseconds."""
    step_s: float
    """Length of a step in seconds."""
    steps: int
    """Number of steps."""

    @classmethod
    def over(cls, start_ns: int, end_ns: int, sampling_s: float, max_steps: int = MAX_STEPS) -> TimeGrid:
        """Return a grid of whole sampling intervals over a window, with at most `max_steps` steps."""
        seconds = (end_ns - start_ns) / SECOND_NS
        step_s = sampling_s * max(1, math.ceil(seconds / sampling_s / max_steps))
        return cls(start_ns=start_ns, step_s=step_s, steps=max(1, math.ceil(seconds / step_s)))

    def steps_at(self, times_ns: Ints) -> Ints:
        indices = (times_ns - self.start_ns) // round(self.step_s * SECOND_NS)
        return np.clip(indices, 0, self.steps - 1)

    def counts(self, times_ns: Ints) -> list[int]:
        return np.bincount(self.steps_at(times_ns), minlength=self.steps).tolist()

    def seconds(self, time_ns: int | None) -> float | None:
        """Return a time in seconds since the start of the view."""
        return None if time_ns is None else round((time_ns - self.start_ns) / SECOND_NS, 3)


def round_values(values: npt.NDArray[np.float64], digits: int = 4) -> list[float | None]:
    """Round to significant digits for JSON; NaN and infinities become None."""
    finite = np.isfinite(values)
    safe = np.where(finite & (values != 0), np.abs(values), 1.0)
    scale = 10.0 ** np.clip(digits - 1 - np.floor(np.log10(safe)), -300, 300)
    with np.errstate(over="ignore", invalid="ignore"):
        short = np.round(values * scale) / scale
    short = np.where(np.isfinite(short), short, values)
    return [
        (int(value) if value == int(value) and abs(value) < 1e15 else value) if keep else None
        for value, keep in zip(short.tolist(), finite.tolist(), strict=True)
    ]


NO_CALLS, OK, SLOW, FAILING, SILENT = range(5)
"""States of a service in one step."""
FAILING_SHARE = 0.05
SLOW_FACTOR = 2.0
"""A step is slow if it exceeds the 90th percentile of the reference's steps by this factor."""
EXPECTED_CALLS = 5.0
"""A service is silent if this many calls were expected and none came, for longer than any pause in the reference."""
_SPANS = ("time", "service", "kind", "duration_ns", "status", "status_code")
Floats = npt.NDArray[np.float64]


def service_map(view: EpisodeView, grid: TimeGrid) -> dict[str, Any]:
    """Return the services with their position on the map and their state in each step, and the calls between them.

    The state of a service is computed from the spans of its callers. Without callers, as for the entry, it is computed
    from the service's server spans.
    """
    calls = service_calls(view)
    ends = calls["edge"].str.split("->", n=1, expand=True).reindex(columns=[0, 1])
    calls = calls.assign(caller=ends[0], service=ends[1])
    served = _read_server_spans(view)
    callees = set(calls["service"].dropna())
    rows = pd.concat(
        [calls[["service", "end", "seconds", "failed"]], served[~served["service"].isin(callees)]], ignore_index=True
    )
    rows["step"] = grid.steps_at(rows["end"].to_numpy(dtype=np.int64))
    groups = dict(iter(rows.groupby("service")))
    edges = calls.groupby(["caller", "service"]).size() if len(calls) else pd.Series(dtype=int)
    declared = dict.fromkeys(view.calls)
    observed = [(str(caller), str(callee)) for caller, callee in edges.index]
    pairs = list(dict.fromkeys([*declared, *observed]))
    names = list(dict.fromkeys([*view.services, *(name for pair in pairs for name in pair)]))
    positions = arrange_in_layers(names, pairs, view.context.workload_entry)
    split = max(1, min(grid.steps, int((view.reference[1] - grid.start_ns) / SECOND_NS / grid.step_s)))
    return {
        "nodes": [
            {"name": name, "layer": positions[name][0], "place": positions[name][1]}
            | _measure_health(groups.get(name), grid, split)
            for name in names
        ],
        "edges": [
            {"from": caller, "to": callee, "calls": int(edges.get((caller, callee), 0))} for caller, callee in pairs
        ],
    }


def _read_server_spans(view: EpisodeView) -> pd.DataFrame:
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


def _measure_health(rows: pd.DataFrame | None, grid: TimeGrid, split: int) -> dict[str, Any]:
    """Return state, calls, failed calls and mean milliseconds of each step."""
    if rows is None or rows.empty:
        zeros = [0] * grid.steps
        return {"state": zeros, "calls": zeros, "failed": zeros, "ms": [None] * grid.steps}
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
        "ms": round_values(mean),
    }


def states(calls: Floats, failed: Floats, mean: Floats, split: int) -> npt.NDArray[np.int64]:
    """Return the state of a service in each step from its calls, failed calls and mean duration, NaN without calls.

    All steps are compared with the first `split` steps, the reference.
    """
    state = np.where(calls > 0, OK, NO_CALLS)
    healthy = mean[:split][~np.isnan(mean[:split])]
    if len(healthy):
        with np.errstate(invalid="ignore"):
            state[(calls > 0) & (mean > SLOW_FACTOR * np.quantile(healthy, 0.9))] = SLOW
    state[(calls > 0) & (failed >= FAILING_SHARE * calls) & (failed > 0)] = FAILING
    usual = calls[:split].mean()
    if usual > 0:
        width = max(int(np.ceil(EXPECTED_CALLS / usual)), 1 + _find_longest_pause(calls[:split]))
        sums = np.concatenate([np.zeros(width), np.cumsum(calls)])
        quiet = sums[width:] - sums[:-width] == 0
        quiet[:width] = False
        state[quiet] = SILENT
    return state


def _find_longest_pause(calls: Floats) -> int:
    with_calls = np.flatnonzero(np.concatenate([[1.0], calls, [1.0]]))
    return int(np.diff(with_calls).max()) - 1


def arrange_in_layers(
    names: Sequence[str], calls: Sequence[tuple[str, str]], entry: str
) -> Mapping[str, tuple[int, int]]:
    """Arrange services in layers by their distance from the entry, close to their callers.

    >>> dict(arrange_in_layers(["a", "b", "c", "lonely"], [("a", "b"), ("b", "c")], "a"))
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
    positions: dict[str, tuple[int, int]] = {}
    for number in sorted(layers):
        above = {
            name: [positions[caller][1] for caller, callee in calls if callee == name and caller in positions]
            for name in layers[number]
        }
        middle = {name: sum(callers) / len(callers) if callers else 0.0 for name, callers in above.items()}
        for index, name in enumerate(sorted(layers[number], key=lambda name: middle[name])):
            positions[name] = (number, index)
    return positions


def metric_lines(view: EpisodeView, grid: TimeGrid) -> list[dict[str, Any]]:
    """Return levels and rates, one line per service and metric; a constant line is a single value.

    Metrics without a service or without values are omitted.
    """
    frame = read_wide(view, grid.step_s)
    catalogue = view.catalogue
    values = frame.to_numpy(dtype=float)
    lines = []
    for number, (service, metric) in enumerate(frame.columns):
        column = values[: grid.steps, number]
        samples = column[~np.isnan(column)]
        if not len(samples) or not service:
            continue
        plain = str(metric).partition("{")[0]
        row = catalogue.find(plain)
        if row is None:
            unit = "s" if plain.endswith("_mean") else "/s" if plain.endswith("_rate") else ""
        else:
            unit = ("" if row.unit == "1" else row.unit) + ("/s" if row.kind == "counter" else "")
        # a rate has no value in its first step
        constant = len(samples) >= len(column) - 1 and not np.isnan(column[-1]) and (samples == samples[0]).all()
        lines.append(
            {
                "service": str(service),
                "metric": str(metric),
                "role": catalogue.role_of(str(metric)),
                "unit": unit,
                "values": round_values(samples[:1])[0] if constant else round_values(column),
            }
        )
    return lines


def client_requests(view: EpisodeView, grid: TimeGrid) -> dict[str, Any] | None:
    """Count requests by step and outcome, with latency in milliseconds; None without requests."""
    frame = read_frame(view, "requests", ("scheduled", "endpoint", "latency_ns", "status", "outcome"))
    if frame.empty:
        return None
    frame = frame.assign(step=grid.steps_at(frame["scheduled"].to_numpy()), ms=frame["latency_ns"] / 1e6)
    outcome = frame["outcome"].astype(str)
    frame["ok"], frame["unfinished"] = outcome == "ok", outcome == "unfinished"
    frame["failed"] = ~frame["ok"] & ~frame["unfinished"]
    counts = {
        kind: np.bincount(frame.loc[frame[kind], "step"], minlength=grid.steps).tolist()
        for kind in ("ok", "failed", "unfinished")
    }
    quantiles = frame.groupby("step")["ms"].quantile(np.array([0.5, 0.95])).unstack().reindex(range(grid.steps))
    return counts | {
        "p50": round_values(quantiles[0.5].to_numpy(dtype=float)),
        "p95": round_values(quantiles[0.95].to_numpy(dtype=float)),
        "endpoints": _summarise_endpoints(frame, view.reference[1]),
    }


def _summarise_endpoints(frame: pd.DataFrame, reference_end_ns: int) -> list[dict[str, Any]]:
    rows = []
    for endpoint, requests in frame.groupby("endpoint", observed=True):
        row: dict[str, Any] = {"endpoint": str(endpoint)}
        before = requests["scheduled"] < reference_end_ns
        for window, chosen in (("before", requests[before]), ("after", requests[~before])):
            row[window] = {
                "requests": len(chosen),
                "failed": int(chosen["failed"].sum()),
                "ms": round_values(np.array([chosen["ms"].median()], dtype=float))[0],
            }
        rows.append(row)
    return rows
