"""Features of each service of an episode, in columns that mean the same in every application.

Services have other metrics, templates and callers in every application. So each series is measured by the episode's
own reference, and the largest deviation among those of one role is the value of that role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.datasets.training.tables import log_lines, metric_frame, service_calls

if TYPE_CHECKING:
    from faultset.datasets.training.columns import FeatureColumns, Modality
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
