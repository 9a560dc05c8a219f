"""Anomalous series in the sense of PDiagnose, and whether they warrant a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from faultset.baselines.stats.scaling import Matrix, mean_and_sd, with_floor, with_metric_floor

Flags = npt.NDArray[np.bool_]
Combine = Literal["or", "and"]
Series = Sequence[tuple[str, str]]
"""(service, metric) of each column."""
P0 = 0.0027
WMA_SIGMAS = 4.0
_BLOCK_FLOATS = 4_000_000


def kde_tail(reference: Matrix, values: Matrix, series: Series | None = None) -> Matrix:
    """Two-sided tail probability of values under a kernel density estimate of the reference, column by column.

    The kernel is Gaussian with Scott's bandwidth. A gap in the values gives 1. With `series` the bandwidth follows from
    no less than a share of the spread that a metric has over all services.
    """
    samples = len(reference)
    if samples == 0:
        return np.ones(values.shape)
    _, sd = mean_and_sd(reference, ddof=1)
    sd = sd if series is None else with_metric_floor(sd, series)
    # of a series that was always 0, zero is certain and all else impossible
    bandwidth = np.maximum(sd * samples ** (-1 / 5), np.finfo(float).tiny)
    below = np.empty(values.shape)
    rows = max(1, _BLOCK_FLOATS // max(1, reference.size))
    for start in range(0, len(values), rows):
        piece = slice(start, start + rows)
        with np.errstate(over="ignore"):
            below[piece] = ndtr((values[piece, None, :] - reference[None]) / bandwidth).mean(axis=1)
    return np.where(np.isfinite(below), 2 * np.minimum(below, 1 - below), 1.0)


def wma_residuals(series: Matrix, window: int) -> Matrix:
    """Distance of each value from the linearly weighted mean of the `window` values before it.

    The first `window` rows, which have no such mean, are NaN.
    """
    residuals = np.full(series.shape, np.nan)
    if len(series) <= window:
        return residuals
    weights = np.arange(1, window + 1) / (window * (window + 1) / 2)
    past = np.lib.stride_tricks.sliding_window_view(series[:-1], window, axis=0)
    residuals[window:] = series[window:] - past @ weights
    return residuals


def wma_jumps(
    reference: Matrix, values: Matrix, *, window: int, sigmas: float = WMA_SIGMAS, series: Series | None = None
) -> Flags:
    """Flag jumps of reference and values, in this order of time, against the usual error of the reference."""
    residuals = wma_residuals(np.vstack([reference, values]), window)
    healthy = residuals[window : len(reference)]
    center, _ = mean_and_sd(reference)
    error_scale = np.full(reference.shape[1], np.inf)
    if len(healthy):
        error_scale = np.sqrt(np.mean(np.where(np.isfinite(healthy), healthy, 0.0) ** 2, axis=0))
    error_scale = with_floor(error_scale, center)
    if series is not None and np.isfinite(error_scale).all():
        error_scale = with_metric_floor(error_scale, series)
    with np.errstate(invalid="ignore"):
        return np.abs(residuals) > sigmas * error_scale


def kpi_flags(
    reference: Matrix,
    values: Matrix,
    *,
    window: int,
    absent: Flags | None = None,
    combine: Combine = "or",
    p0: float = P0,
    series: Series | None = None,
) -> Flags:
    """Flag each value that the density or the moving average of its series finds implausible.

    `values` must follow the reference in time, so that the moving average can start inside it. The density
    covers a level shift for its whole length; the moving average covers jumps within the normal range.
    """
    unlikely = kde_tail(reference, values, series) < p0
    jumps = wma_jumps(reference, values, window=window, series=series)[len(reference) :]
    flags = unlikely & jumps if combine == "and" else unlikely | jumps
    return flags if absent is None else flags | absent


@dataclass(frozen=True, kw_only=True)
class QueueFeatures:
    """The anomaly queue after each step: its events are the flags of the last `window` steps."""

    length: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]
    """Flagged series in the current step alone."""
    density: Matrix
    services: npt.NDArray[np.int64]
    """Services with an event in the queue."""
    unevenness: Matrix
    """Standard deviation of the number of events per service."""


def queue_features(flags: Flags, services: list[str], window: int = 10, *, moving: int | None = None) -> QueueFeatures:
    """Describe the queue of anomalous (step, series) events step by step.

    Parameters
    ----------
    moving
        Number of series that the density is measured by; all by default.
    """
    steps, series = flags.shape
    names = sorted(set(services))
    member = np.array([[service == name for name in names] for service in services], dtype=np.int64)
    per_service = flags.astype(np.int64) @ member.reshape(series, len(names))
    total = np.cumsum(per_service, axis=0)
    queue = total.copy()
    queue[window:] -= total[:-window] if steps > window else 0
    length = queue.sum(axis=1)
    return QueueFeatures(
        length=length,
        distinct=flags.sum(axis=1),
        density=length / (window * max(1, series if moving is None else moving)),
        services=(queue > 0).sum(axis=1),
        unevenness=queue.std(axis=1) if names else np.zeros(steps),
    )


def triggers(features: QueueFeatures, density_limit: float, *, least_series: int = 2) -> Flags:
    """Steps that start a diagnosis: several series flagged at once, in a queue denser than normal."""
    return np.asarray((features.distinct >= least_series) & (features.density > density_limit))


def reference_density(
    reference: Matrix,
    services: list[str],
    *,
    window: int,
    queue: int = 10,
    blocks: int = 4,
    share: float = 0.99,
    series: Series | None = None,
    moving: int | None = None,
) -> float:
    """Queue density that healthy data stays below, the density of each block estimated from the other
    blocks."""
    pieces = np.array_split(np.arange(len(reference)), blocks)
    if min(len(piece) for piece in pieces) == 0:
        return 0.0
    flags = wma_jumps(reference, reference[:0], window=window, series=series)
    for piece in pieces:
        rest = np.setdiff1d(np.arange(len(reference)), piece)
        flags[piece] |= kde_tail(reference[rest], reference[piece], series) < P0
    return float(np.quantile(queue_features(flags, services, queue, moving=moving).density, share))
