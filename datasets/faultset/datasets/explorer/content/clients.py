"""What clients saw: requests by outcome, and how long they took."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from faultset.datasets.explorer.content.time_grid import TimeGrid, rounded
from faultset.datasets.recorded_tables import read_frame
from faultset.datasets.views import EpisodeView


def client_requests(view: EpisodeView, grid: TimeGrid) -> dict[str, Any] | None:
    """Count requests by step and outcome, with latency in milliseconds; None where none were recorded."""
    frame = read_frame(view, "requests", ("scheduled", "endpoint", "latency_ns", "status", "outcome"))
    if frame.empty:
        return None
    frame = frame.assign(step=grid.cells(frame["scheduled"].to_numpy()), ms=frame["latency_ns"] / 1e6)
    outcome = frame["outcome"].astype(str)
    frame["ok"], frame["unfinished"] = outcome == "ok", outcome == "unfinished"
    frame["failed"] = ~frame["ok"] & ~frame["unfinished"]
    counts = {
        kind: np.bincount(frame.loc[frame[kind], "step"], minlength=grid.steps).tolist()
        for kind in ("ok", "failed", "unfinished")
    }
    quantiles = frame.groupby("step")["ms"].quantile(np.array([0.5, 0.95])).unstack().reindex(range(grid.steps))
    return counts | {
        "p50": rounded(quantiles[0.5].to_numpy(dtype=float)),
        "p95": rounded(quantiles[0.95].to_numpy(dtype=float)),
        "endpoints": _endpoints(frame, view.reference[1]),
    }


def _endpoints(frame: pd.DataFrame, reference_end_ns: int) -> list[dict[str, Any]]:
    """Summarise each endpoint, in the reference and after it."""
    rows = []
    for endpoint, requests in frame.groupby("endpoint", observed=True):
        row: dict[str, Any] = {"endpoint": str(endpoint)}
        before = requests["scheduled"] < reference_end_ns
        for part, chosen in (("before", requests[before]), ("after", requests[~before])):
            row[part] = {
                "requests": len(chosen),
                "failed": int(chosen["failed"].sum()),
                "ms": rounded(np.array([chosen["ms"].median()], dtype=float))[0],
            }
        rows.append(row)
    return rows
