"""Features of one episode on a regular grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets.training.columns import CALL_FEATURES, OTHER_LINES, FeatureColumns
from faultset.datasets.training.service_features import service_features
from faultset.datasets.training.tables import log_lines, metric_frame, service_calls

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Values = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class StepFeatures:
    """What is known of an episode step by step; nothing of it comes from the truth."""

    ends_ns: Ints
    """[T] end of each step, UTC nanoseconds: the instant at which its values are known."""
    values: Values
    """[T, D], or [T, S, D] of columns per service; 0 where the mask is false."""
    mask: Mask
    """[T, D], or [T, S, D]; whether there is a value: a sample was taken, or a call whose latency can be told."""
    services: tuple[str, ...] = ()
    """[S] of columns per service."""


def step_count(view: EpisodeView, step_s: float) -> int:
    """Return the number of steps of a view; the last may be shorter."""
    start_ns, end_ns = view.window
    return math.ceil((end_ns - start_ns) / round(step_s * SECOND_NS))


def step_features(view: EpisodeView, columns: FeatureColumns) -> StepFeatures:
    """Make the features of an episode.

    Metrics are those of `EpisodeView.wide`: rates of counters, levels of gauges. Log lines are counted in the step in
    which they were read, calls in the step in which they ended. Counts are 0 where nothing happened; a latency is
    masked there.

    Parameters
    ----------
    view
        The episode.
    columns
        Which features; series that the episode does not have are masked, and counts of what was not recorded at all.
    """
    start_ns, end_ns = view.window
    step_ns = round(columns.step_s * SECOND_NS)
    steps = step_count(view, columns.step_s)
    ends_ns = np.minimum(start_ns + step_ns * np.arange(1, steps + 1, dtype=np.int64), end_ns)
    if columns.is_per_service:
        values, mask = service_features(view, columns, ends_ns)
        return StepFeatures(ends_ns=ends_ns, values=values, mask=mask, services=view.services)
    values = np.zeros((steps, len(columns)), dtype=np.float32)
    mask = np.zeros(values.shape, dtype=bool)
    _metrics(view, columns, values, mask)
    for count in (_logs, _traces):
        count(view, columns, values, mask, start_ns, step_ns)
    return StepFeatures(ends_ns=ends_ns, values=values, mask=mask)


def _metrics(view: EpisodeView, columns: FeatureColumns, values: Values, mask: Mask) -> None:
    places = columns.places("metrics")
    if not places:
        return
    frame = metric_frame(view, columns.step_s, columns.roles)
    found = [(number, places[key]) for number, key in enumerate(frame.columns.tolist()) if key in places]
    if not found:
        return
    source, target = (list(side) for side in zip(*found, strict=True))
    data = frame.to_numpy(dtype=np.float32)[:, source]
    known = np.isfinite(data)
    values[:, target], mask[:, target] = np.where(known, data, 0.0), known


def _logs(view: EpisodeView, columns: FeatureColumns, values: Values, mask: Mask, start_ns: int, step_ns: int) -> None:
    places = columns.places("logs")
    if not places:
        return
    lines = log_lines(view)
    # no line at all says that none was recorded
    mask[:, list(places.values())] = len(lines) > 0
    keys = list(zip(lines["service"], lines["template"], strict=True))
    place = [places.get(key, places.get((key[0], OTHER_LINES), -1)) for key in keys]
    _add(values, (lines["time"].to_numpy() - start_ns) // step_ns, np.array(place, dtype=np.int64), 1.0)


def _traces(
    view: EpisodeView, columns: FeatureColumns, values: Values, mask: Mask, start_ns: int, step_ns: int
) -> None:
    places = columns.places("traces")
    if not places:
        return
    calls = service_calls(view)
    if calls.empty:
        return
    row = (calls["end"].to_numpy() - start_ns - 1) // step_ns
    by = {what: _places(calls["edge"], places, what) for what in CALL_FEATURES}
    for what, amount in (("calls", 1.0), ("errors", calls["failed"].to_numpy()), ("latency_s", calls["seconds"])):
        mask[:, [place for (_, name), place in places.items() if name == what]] = True
        _add(values, row, by[what], np.asarray(amount, dtype=np.float64))
    latency = [place for (_, name), place in places.items() if name == "latency_s"]
    count = values[:, [places[edge, "calls"] for (edge, name) in places if name == "latency_s"]]
    values[:, latency] = np.divide(values[:, latency], count, out=np.zeros_like(count), where=count > 0)
    mask[:, latency] = count > 0


def _places(edges: pd.Series, places: dict[tuple[str, str], int], what: str) -> Ints:
    known = {edge: place for (edge, name), place in places.items() if name == what}
    return np.asarray(edges.map(known).fillna(-1), dtype=np.int64)


def _add(values: Values, rows: Ints, places: Ints, amounts: float | npt.NDArray[np.float64]) -> None:
    """Add amounts to cells; those outside of the grid are left out."""
    inside = (rows >= 0) & (rows < len(values)) & (places >= 0)
    cells = rows[inside] * values.shape[1] + places[inside]
    weights = np.broadcast_to(np.asarray(amounts, dtype=np.float64), rows.shape)[inside]
    values += np.bincount(cells, weights, minlength=values.size).reshape(values.shape).astype(np.float32)
