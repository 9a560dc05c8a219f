"""How long the calls of a service usually take, from the spans of the last half minute."""

from __future__ import annotations

import time

import numpy as np

from faultset.collector.platforms.api.platform import Platform
from faultset.core.times import SECOND_NS

_WINDOW_S = 30.0


def usual_call_ms(platform: Platform, service: str) -> float:
    """Return within how many milliseconds nine of ten calls of a service were answered lately; 0 without any."""
    end_ns = time.time_ns()
    durations: list[int] = []
    for batch in platform.sources["spans"].snapshot(end_ns - int(_WINDOW_S * SECOND_NS), end_ns):
        rows = batch.select(["service", "kind", "duration_ns", "status"]).to_pylist()
        durations += [
            row["duration_ns"]
            for row in rows
            if row["service"] == service and row["kind"] == "client" and row["status"] != "error"
        ]
    return float(np.quantile(durations, 0.9)) / 1e6 if durations else 0.0
