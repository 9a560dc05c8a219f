"""Metrics of every service as lines, with their roles."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.datasets.explorer.content.time_grid import TimeGrid, rounded
from faultset.datasets.recorded_tables import read_wide
from faultset.datasets.views import EpisodeView

_RATED = {"counter": "/s"}


def metric_lines(view: EpisodeView, grid: TimeGrid) -> list[dict[str, Any]]:
    """Return levels and rates, a line for each service and metric; one that never moves is its single value.

    Metrics without a service, and lines without a number, are left out.
    """
    frame = read_wide(view, grid.step_s)
    catalogue = view.catalogue
    values = frame.to_numpy(dtype=float)
    lines = []
    for number, (service, metric) in enumerate(frame.columns):
        column = values[: grid.steps, number]
        known = column[~np.isnan(column)]
        if not len(known) or not service:
            continue
        plain = str(metric).partition("{")[0]
        row = catalogue.find(plain)
        if row is None:
            unit = "s" if plain.endswith("_mean") else "/s" if plain.endswith("_rate") else ""
        else:
            unit = ("" if row.unit == "1" else row.unit) + _RATED.get(row.kind, "")
        # a rate has no number in its first step
        constant = len(known) >= len(column) - 1 and not np.isnan(column[-1]) and (known == known[0]).all()
        lines.append(
            {
                "service": str(service),
                "metric": str(metric),
                "role": catalogue.role_of(str(metric)),
                "unit": unit,
                "values": rounded(known[:1])[0] if constant else rounded(column),
            }
        )
    return lines
