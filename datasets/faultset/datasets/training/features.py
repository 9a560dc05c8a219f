"""Features of an episode on a regular grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.core.times import SECOND_NS
from faultset.datasets.training.columns import (
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

MIN_SPREAD = 0.01
"""Minimum standard deviation of a series in the reference, as a share of its mean."""
CLIP = 1e4


def service_features(view: EpisodeView, columns: FeatureColumns, ends_ns: Ints) -> tuple[Values, Mask]:
    """Return log(1 + |deviation|) and a mask of values, both [T, S, D] with services as in `view.services`."""
    shape = (len(ends_ns), len(view.services), len(columns))
    values, mask = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=bool)
    healthy = ends_ns <= view.reference[1]
    for series, service, column in _list_series(view, columns, ends_ns, healthy):
        finite = np.isfinite(series)
        deviation = np.log1p(_compute_deviation(series, finite & healthy))
        values[finite, service, column] = np.maximum(values[finite, service, column], deviation[finite])
        mask[finite, service, column] = True
    return values, mask


def _list_series(
    view: EpisodeView, columns: FeatureColumns, ends_ns: Ints, healthy: Mask
) -> Iterator[tuple[Series, int, int]]:
    """Yield series with the positions of their service and column."""
    service_of = {name: position for position, name in enumerate(view.services)}
    metrics = {feature: position for (_, feature), position in columns.positions("metrics").items()}
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
    for modality, read_series in readers.items():
        positions = {feature: position for (_, feature), position in columns.positions(modality).items()}
        if positions:
            for service, feature, series in read_series(view, ends_ns, healthy):
                yield series, service_of[service], positions[feature]


def _compute_deviation(series: Series, healthy: Mask) -> Series:
    """Return the distance of a series from the mean of its healthy steps, in standard deviations of these steps."""
    if not healthy.any():
        return np.zeros(len(series))
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = series[healthy].mean(), series[healthy].std()
        distance = np.abs(np.nan_to_num(series - mean))
        floor = max(spread, MIN_SPREAD * abs(mean))
        return np.minimum(distance, CLIP * floor) / floor if floor else np.where(distance > 0, CLIP, 0.0)


def _line_series(view: EpisodeView, ends_ns: Ints, healthy: Mask) -> Iterator[tuple[str, str, Series]]:
    """Yield, for each service, the number of lines, and of lines whose template does not occur in the reference."""
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
        rows = (lines["service"] == service).to_numpy()
        yield service, "lines", np.bincount(step[rows], minlength=len(ends_ns)).astype(float)
        yield service, "new lines", np.bincount(step[rows & is_new], minlength=len(ends_ns)).astype(float)


def _call_series(view: EpisodeView, ends_ns: Ints, _: Mask) -> Iterator[tuple[str, str, Series]]:
    """Yield, for each service, the number of calls to it, their errors and their mean latency."""
    calls = service_calls(view)
    if calls.empty:
        return
    step = np.searchsorted(ends_ns, calls["end"].to_numpy())
    inside = (step < len(ends_ns)) & (calls["end"].to_numpy() > view.window[0])
    calls, step = calls[inside], step[inside]
    callee = calls["edge"].str.partition("->")[2].to_numpy()
    for service in view.services:
        rows = callee == service
        count, errors, seconds = (
            np.bincount(step[rows], weights=weights, minlength=len(ends_ns)).astype(float)
            for weights in (None, calls["failed"].to_numpy()[rows], calls["seconds"].to_numpy()[rows])
        )
        yield service, "calls", count
        yield service, "errors", errors
        yield service, "latency_s", np.divide(seconds, count, out=np.full(len(count), np.nan), where=count > 0)


@dataclass(frozen=True, kw_only=True)
class StepFeatures:
    """Features of an episode per step; none is computed from the truth."""

    ends_ns: Ints
    """[T] end of each step in UTC nanoseconds, when its values become available."""
    values: Values
    """[T, D], or [T, S, D] for columns per service; 0 where the mask is false."""
    mask: Mask
    """[T, D], or [T, S, D]; whether a feature has a value."""
    services: tuple[str, ...] = ()
    """[S] services, for columns per service."""


def step_count(view: EpisodeView, step_s: float) -> int:
    """Return the number of steps of a view; the last may be shorter."""
    start_ns, end_ns = view.window
    return math.ceil((end_ns - start_ns) / round(step_s * SECOND_NS))


def step_features(view: EpisodeView, columns: FeatureColumns) -> StepFeatures:
    """Compute the features of an episode.

    Metrics are as in `EpisodeView.wide`: rates of counters and levels of gauges. Log lines are counted in the step in
    which they were logged, calls in the step in which they ended. In steps without calls, counts are 0 and the latency
    is masked. Metrics that the episode lacks are masked, and so are counts of tables that were not recorded.
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
    _fill_metrics(view, columns, values, mask)
    _fill_logs(view, columns, values, mask, start_ns, step_ns)
    _fill_traces(view, columns, values, mask, start_ns, step_ns)
    return StepFeatures(ends_ns=ends_ns, values=values, mask=mask)


def _fill_metrics(view: EpisodeView, columns: FeatureColumns, values: Values, mask: Mask) -> None:
    positions = columns.positions("metrics")
    if not positions:
        return
    frame = metric_frame(view, columns.step_s, columns.roles)
    pairs = [(number, positions[key]) for number, key in enumerate(frame.columns.tolist()) if key in positions]
    if not pairs:
        return
    source, target = (list(side) for side in zip(*pairs, strict=True))
    data = frame.to_numpy(dtype=np.float32)[:, source]
    finite = np.isfinite(data)
    values[:, target], mask[:, target] = np.where(finite, data, 0.0), finite


def _fill_logs(
    view: EpisodeView, columns: FeatureColumns, values: Values, mask: Mask, start_ns: int, step_ns: int
) -> None:
    positions = columns.positions("logs")
    if not positions:
        return
    lines = log_lines(view)
    # If there are no lines at all, logs were probably not recorded.
    mask[:, list(positions.values())] = len(lines) > 0
    keys = zip(lines["service"], lines["template"], strict=True)
    targets = [positions.get(key, positions.get((key[0], OTHER_LINES), -1)) for key in keys]
    _add_to_cells(values, (lines["time"].to_numpy() - start_ns) // step_ns, np.array(targets, dtype=np.int64), 1.0)


def _fill_traces(
    view: EpisodeView, columns: FeatureColumns, values: Values, mask: Mask, start_ns: int, step_ns: int
) -> None:
    positions = columns.positions("traces")
    if not positions:
        return
    calls = service_calls(view)
    if calls.empty:
        return
    rows = (calls["end"].to_numpy() - start_ns - 1) // step_ns
    for feature, amount in (("calls", 1.0), ("errors", calls["failed"].to_numpy()), ("latency_s", calls["seconds"])):
        edge_positions = {edge: position for (edge, name), position in positions.items() if name == feature}
        mask[:, list(edge_positions.values())] = True
        targets = np.asarray(calls["edge"].map(edge_positions).fillna(-1), dtype=np.int64)
        _add_to_cells(values, rows, targets, np.asarray(amount, dtype=np.float64))
    latency = [position for (_, name), position in positions.items() if name == "latency_s"]
    count = values[:, [positions[edge, "calls"] for (edge, name) in positions if name == "latency_s"]]
    values[:, latency] = np.divide(values[:, latency], count, out=np.zeros_like(count), where=count > 0)
    mask[:, latency] = count > 0


def _add_to_cells(values: Values, rows: Ints, columns: Ints, amounts: float | npt.NDArray[np.float64]) -> None:
    """Add amounts to cells; cells outside the grid are ignored."""
    inside = (rows >= 0) & (rows < len(values)) & (columns >= 0)
    cells = rows[inside] * values.shape[1] + columns[inside]
    weights = np.broadcast_to(np.asarray(amounts, dtype=np.float64), rows.shape)[inside]
    values += np.bincount(cells, weights, minlength=values.size).reshape(values.shape).astype(np.float32)
