"""Features of one episode on a regular grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets.training.columns import (
    CALL_FEATURES,
    OTHER_LINES,
    FeatureColumns,
    log_lines,
    metric_frame,
    service_calls,
)

if TYPE_CHECKING:
    from faultset.datasets.training.columns import Modality
    from faultset.datasets.views import EpisodeView

Values = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Series = npt.NDArray[np.float64]

LEAST_SPREAD = 0.01
"""Smallest standard deviation of a series in the reference, as a share of its mean."""
CLIP = 1e4


def service_features(view: EpisodeView, columns: FeatureColumns, ends_ns: Ints) -> tuple[Values, Mask]:
    """Return log(1 + |deviation|) and whether there is a value, [T, S, D], services as in `view.services`.

    Parameters
    ----------
    view
        The episode.
    columns
        Made by `FeatureColumns.per_service`.
    ends_ns
        [T] end of each step.
    """
    shape = (len(ends_ns), len(view.services), len(columns))
    values, mask = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=bool)
    healthy = ends_ns <= view.reference[1]
    for series, service, column in _all_series(view, columns, ends_ns, healthy):
        seen = np.isfinite(series)
        deviation = np.log1p(_deviation(series, seen & healthy))
        values[seen, service, column] = np.maximum(values[seen, service, column], deviation[seen])
        mask[seen, service, column] = True
    return values, mask


def _all_series(
    view: EpisodeView, columns: FeatureColumns, ends_ns: Ints, healthy: Mask
) -> Iterator[tuple[Series, int, int]]:
    """Yield series with the places of their service and column."""
    service_of = {name: place for place, name in enumerate(view.services)}
    metrics = {what: place for (_, what), place in columns.places("metrics").items()}
    if metrics:
        frame = metric_frame(view, columns.step_s, columns.roles)
        if len(frame):
            role_of = view.catalogue.role_of
            for number, (service, metric) in enumerate(frame.columns.tolist()):
                column = metrics.get(role_of(metric))
                if column is not None and service in service_of:
                    yield frame.iloc[:, number].to_numpy(dtype=float), service_of[service], column
    readers: dict[Modality, Callable[[EpisodeView, Ints, Mask], Iterator[tuple[str, str, Series]]]] = {
        "logs": _line_series,
        "traces": _call_series,
    }
    for modality, counted in readers.items():
        places = {what: place for (_, what), place in columns.places(modality).items()}
        if places:
            for service, what, series in counted(view, ends_ns, healthy):
                yield series, service_of[service], places[what]


def _deviation(series: Series, known: Mask) -> Series:
    """Return by how many standard deviations of its healthy steps a series is away from their mean."""
    if not known.any():
        return np.zeros(len(series))
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = series[known].mean(), series[known].std()
        distance = np.abs(np.nan_to_num(series - mean))
        floor = max(spread, LEAST_SPREAD * abs(mean))
        return np.minimum(distance, CLIP * floor) / floor if floor else np.where(distance > 0, CLIP, 0.0)


def _line_series(view: EpisodeView, ends_ns: Ints, healthy: Mask) -> Iterator[tuple[str, str, Series]]:
    """Yield the number of lines, and of lines whose template the reference does not have, of every service."""
    lines = log_lines(view)
    if lines.empty:
        return
    step = np.searchsorted(ends_ns, lines["time"].to_numpy(), side="right")
    inside = (step < len(ends_ns)) & (lines["time"].to_numpy() >= view.window[0])
    lines, step = lines[inside], step[inside]
    is_healthy = healthy[step]
    keys = lines["service"] + "\n" + lines["template"]
    is_new = ~keys.isin(keys[is_healthy].unique()).to_numpy()
    for service in view.services:
        own = (lines["service"] == service).to_numpy()
        yield service, "lines", np.bincount(step[own], minlength=len(ends_ns)).astype(float)
        yield service, "new lines", np.bincount(step[own & is_new], minlength=len(ends_ns)).astype(float)


def _call_series(view: EpisodeView, ends_ns: Ints, _: Mask) -> Iterator[tuple[str, str, Series]]:
    """Yield calls to a service, their errors and mean latency."""
    calls = service_calls(view)
    if calls.empty:
        return
    step = np.searchsorted(ends_ns, calls["end"].to_numpy())
    inside = (step < len(ends_ns)) & (calls["end"].to_numpy() > view.window[0])
    calls, step = calls[inside], step[inside]
    callee = calls["edge"].str.partition("->")[2].to_numpy()
    for service in view.services:
        own = callee == service
        count, errors, seconds = (
            np.bincount(step[own], weights=weights, minlength=len(ends_ns)).astype(float)
            for weights in (None, calls["failed"].to_numpy()[own], calls["seconds"].to_numpy()[own])
        )
        yield service, "calls", count
        yield service, "errors", errors
        yield service, "latency_s", np.divide(seconds, count, out=np.full(len(count), np.nan), where=count > 0)


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
