"""Metric series that left their usual range: deviations, alarms, and queues of anomalies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from faultset.baselines.contract import Evidence, Ranking
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_floor, with_metric_floor
from faultset.datasets.views import EpisodeView

CLIP = 100.0
Series = Sequence[tuple[str, str]]
"""(service, metric) of each column."""


def standardise_windows(windows: Windows, *, stopped: bool = True) -> tuple[Matrix, Matrix]:
    """Return the reference and the test window as z-scores of the reference, clipped at 100.

    Parameters
    ----------
    stopped
        If true, a series that stopped has z = 10. Otherwise its gap counts as the healthy mean.
    """
    mean, sd = mean_and_sd(windows.reference)
    scale = with_metric_floor(sd, windows.series)
    healthy = deviations(windows.reference, mean, scale)
    recent = deviations(windows.values, mean, scale, windows.absent if stopped else None)
    return np.clip(healthy, -CLIP, CLIP), np.clip(recent, -CLIP, CLIP)


_MAX_EVIDENCE = 5


def largest_deviations(z: Matrix, windows: Windows, row: int, detail: str) -> tuple[Evidence, ...]:
    """Return the series that deviate most in one row as evidence."""

    def describe(column: int) -> str:
        if windows.absent[row, column]:
            return "series stopped"
        return f"{detail}, {'up' if z[row, column] > 0 else 'down'}"

    order = np.argsort(-np.abs(z[row]), kind="stable")[:_MAX_EVIDENCE]
    return tuple(series_evidence(windows.series, np.abs(z[row]), order, describe))


def series_evidence(
    series: Series, scores: Matrix, columns: Iterable[int], detail: str | Callable[[int], str]
) -> list[Evidence]:
    """Return evidence for some columns with their scores; the detail may be a function of the column."""
    return [
        Evidence(
            service=series[column][0],
            subject=series[column][1],
            score=float(scores[column]),
            detail=detail if isinstance(detail, str) else detail(column),
        )
        for column in columns
    ]


def rank_by_series(
    score: Matrix,
    series: tuple[tuple[str, str], ...],
    services: tuple[str, ...],
    *,
    breadth: float = 0.0,
    detail: str,
    max_evidence: int = 10,
) -> Ranking:
    """Rank services by the score of their highest series plus `breadth` times the mean of their series."""
    columns: dict[str, list[int]] = {}
    for column, (service, _) in enumerate(series):
        columns.setdefault(service, []).append(column)
    scores = {}
    for service in services:
        if service in columns:
            values = score[columns[service]]
            scores[service] = float(values.max() + breadth * values.mean())
    order = sorted(range(len(series)), key=lambda column: (-score[column], series[column]))[:max_evidence]
    evidence = series_evidence(series, score, order, detail)
    metrics = dict(zip(series, score.tolist(), strict=True))
    return Ranking.of(scores, services, evidence, metrics)


ALARM_ROLES = frozenset({"cpu", "memory"})
ALARM_SIGMAS = 6.0


@dataclass(frozen=True, kw_only=True)
class MetricAlarm:
    """A metric of a service that left its usual range."""

    service: str
    metric: str
    share: float
    """Share of the samples since the alarm that are outside the range."""
    z: float
    """Largest deviation in standard deviations of the reference."""


def find_metric_alarms(
    episode: EpisodeView, alarm_ns: int, *, roles: frozenset[str] = ALARM_ROLES, sigmas: float = ALARM_SIGMAS
) -> list[MetricAlarm]:
    """Return resource metrics that left their range, farthest first; at most one per service and role.

    The standard deviation of a series is at least the spread of the metric's level over services, because a few
    reference samples do not show how much an individual series varies.
    """
    windows = localization_windows(episode, alarm_ns, before=0)
    catalogue = episode.catalogue
    role_of = [catalogue.role_of(metric) for _, metric in windows.series]
    chosen = np.flatnonzero([role in roles for role in role_of])
    if windows.empty or not len(chosen):
        return []
    series = [windows.series[column] for column in chosen]
    center, spread = mean_and_sd(windows.reference[:, chosen])
    scale = np.maximum(spread, level_spread(center, series))
    z = np.abs(deviations(windows.values[:, chosen], center, scale))
    farthest: dict[tuple[str, str], MetricAlarm] = {}
    for column in np.argsort(-z.max(axis=0, initial=0.0), kind="stable"):
        worst = float(z[:, column].max())
        if worst <= sigmas:
            break
        service, metric = series[column]
        alarm = MetricAlarm(service=service, metric=metric, share=float((z[:, column] > sigmas).mean()), z=worst)
        farthest.setdefault((service, role_of[chosen[column]]), alarm)
    return list(farthest.values())


def level_spread(center: Matrix, series: Sequence[tuple[str, str]]) -> Matrix:
    """Return, for each column, the standard deviation of its metric's level over services."""
    names, code = np.unique([metric for _, metric in series], return_inverse=True)
    count = np.maximum(np.bincount(code, minlength=len(names)), 1)
    mean = np.bincount(code, weights=center, minlength=len(names)) / count
    squares = np.bincount(code, weights=(center - mean[code]) ** 2, minlength=len(names))
    return np.sqrt(squares / count)[code]


Flags = npt.NDArray[np.bool_]
Combine = Literal["or", "and"]
P0 = 0.0027
WMA_SIGMAS = 4.0
_BLOCK_FLOATS = 4_000_000


def kde_tail(reference: Matrix, values: Matrix, series: Series | None = None) -> Matrix:
    """Return the two-sided tail probability of values under a kernel density estimate of each column's reference.

    The kernel is Gaussian with Scott's bandwidth. Gaps get probability 1. With `series`, the standard deviation in the
    bandwidth is at least a share of the metric's standard deviation over all services.
    """
    samples = len(reference)
    if samples == 0:
        return np.ones(values.shape)
    _, sd = mean_and_sd(reference, ddof=1)
    sd = sd if series is None else with_metric_floor(sd, series)
    # For a series that was always 0, any other value has probability 0.
    bandwidth = np.maximum(sd * samples ** (-1 / 5), np.finfo(float).tiny)
    lower_tail = np.empty(values.shape)
    rows = max(1, _BLOCK_FLOATS // max(1, reference.size))
    for start in range(0, len(values), rows):
        piece = slice(start, start + rows)
        with np.errstate(over="ignore"):
            lower_tail[piece] = ndtr((values[piece, None, :] - reference[None]) / bandwidth).mean(axis=1)
    return np.where(np.isfinite(lower_tail), 2 * np.minimum(lower_tail, 1 - lower_tail), 1.0)


def wma_residuals(series: Matrix, window: int) -> Matrix:
    """Return the difference of each value from the linearly weighted mean of the previous `window` values.

    The first `window` rows are NaN.
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
    """Flag jumps in the reference and in the values after it, relative to the usual error in the reference."""
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
    """Flag values that are implausible given the density or the moving average of their series.

    `values` must follow the reference in time, so that the moving average can start within it. The density flags a
    level shift for its whole duration. The moving average also flags jumps within the normal range. If `combine` is
    "and", both must flag a value. Values of stopped series (`absent`) are always flagged.
    """
    unlikely = kde_tail(reference, values, series) < p0
    jumps = wma_jumps(reference, values, window=window, series=series)[len(reference) :]
    flags = unlikely & jumps if combine == "and" else unlikely | jumps
    return flags if absent is None else flags | absent


@dataclass(frozen=True, kw_only=True)
class QueueFeatures:
    """The anomaly queue after each step, which holds the flags of the last `window` steps."""

    length: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]
    """Number of flagged series in the current step."""
    density: Matrix
    services: npt.NDArray[np.int64]
    """Number of services with a flag in the queue."""


def compute_queue_features(
    flags: Flags, services: list[str], window: int = 10, *, varying: int | None = None
) -> QueueFeatures:
    """Return features of the anomaly queue after each step.

    Parameters
    ----------
    varying
        Number of varying series, by which the density is divided; by default, all series.
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
        density=length / (window * max(1, series if varying is None else varying)),
        services=(queue > 0).sum(axis=1),
    )


def flag_dense_steps(features: QueueFeatures, density_limit: float, *, min_series: int = 2) -> Flags:
    """Flag steps with several flagged series and a queue that is denser than normal."""
    return np.asarray((features.distinct >= min_series) & (features.density > density_limit))


def reference_density(
    reference: Matrix,
    services: list[str],
    *,
    window: int,
    queue: int = 10,
    blocks: int = 4,
    share: float = 0.99,
    series: Series | None = None,
    varying: int | None = None,
) -> float:
    """Return a quantile of the queue density in the reference; `kde_tail` compares each block with the other blocks."""
    pieces = np.array_split(np.arange(len(reference)), blocks)
    if min(len(piece) for piece in pieces) == 0:
        return 0.0
    flags = wma_jumps(reference, reference[:0], window=window, series=series)
    for piece in pieces:
        rest = np.setdiff1d(np.arange(len(reference)), piece)
        flags[piece] |= kde_tail(reference[rest], reference[piece], series) < P0
    return float(np.quantile(compute_queue_features(flags, services, queue, varying=varying).density, share))
