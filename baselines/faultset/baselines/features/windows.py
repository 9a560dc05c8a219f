"""Reference and test windows of an episode's metrics as matrices.

Windows are counted in samples, so that settings of papers with a 15 s interval carry over to other intervals. The grid
is `EpisodeContext.resolution_s`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from faultset.baselines.stats.scaling import (
    LEVEL,
    Matrix,
    deviations,
    mean_and_sd,
    sustained,
    varies,
    with_metric_floor,
)
from faultset.core.times import SECOND_NS
from faultset.datasets.metrics.roles import Catalogue, is_health_metric
from faultset.datasets.views import EpisodeView, read_wide

FILL_STEPS = 2
MAX_MISSING_SHARE = 0.2
MIN_HEALTHY = 2
"""Minimum number of healthy samples for a spread."""
_SERVICE, _METRIC = 0, 1
"""Levels of the columns of a wide frame."""


@dataclass(frozen=True, kw_only=True)
class TimeWindow:
    """A time window for counting rows, and the healthy window that it is compared with."""

    start_ns: int
    end_ns: int
    healthy_start_ns: int
    healthy_end_ns: int

    @property
    def length_ratio(self) -> float:
        """Return the length of this window divided by the length of the healthy window."""
        return max(0, self.end_ns - self.start_ns) / max(1, self.healthy_end_ns - self.healthy_start_ns)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Metrics of one episode on a regular grid, split into a reference and a test window."""

    series: tuple[tuple[str, str], ...]
    """(service, metric) of each column."""
    step_ns: int
    reference: Matrix
    """[n, d]"""
    values: Matrix
    """[T, d] test window; gaps of up to two steps are filled with the last value."""
    absent: npt.NDArray[np.bool_]
    """[T, d] whether the series has stopped.

    Its gap is then at least three steps long, longer than every gap in the reference, and longer than random loss of
    samples would explain.
    """
    left_out: tuple[tuple[str, str], ...] = ()
    """(service, metric) of the omitted series, which are constant or have too few samples in the reference."""
    times_ns: npt.NDArray[np.int64]
    """[T] end of each step of `values`; steps without any sample are left out."""

    @property
    def services(self) -> list[str]:
        """Return the service of each column."""
        return [service for service, _ in self.series]

    @property
    def empty(self) -> bool:
        """Return whether the reference or the test window is empty."""
        return not self.series or len(self.reference) == 0 or len(self.values) == 0


def detection_windows(episode: EpisodeView) -> Windows:
    """Return the reference and everything after it, for detectors.

    Constant series are kept, because they may change later.
    """
    _, reference_end_ns = episode.reference
    return _cache_windows(episode, episode.context.resolution_s, reference_end_ns, reference_end_ns, keep_constant=True)


def localization_windows(
    episode: EpisodeView, alarm_ns: int, *, before: int = 2, step_s: float | None = None
) -> Windows:
    """Return the reference up to the alarm, and the view from `before` steps before the alarm, for localizers.

    By default, the test window includes the two samples that raised the alarm. Constant series without long gaps are
    left out.
    """
    _, reference_end_ns = episode.reference
    step = step_s or episode.context.resolution_s
    start_ns = alarm_ns - round(before * step * SECOND_NS)
    return _cache_windows(episode, step, min(reference_end_ns, alarm_ns), start_ns, keep_constant=False)


def windows_since_reference(episode: EpisodeView, alarm_ns: int) -> Windows:
    """Return `localization_windows` whose test window begins at the end of the reference."""
    gap_s = (alarm_ns - episode.reference[1]) / SECOND_NS
    return localization_windows(episode, alarm_ns, before=max(1, math.ceil(gap_s / episode.context.resolution_s)))


def measure_deviations(windows: Windows) -> Matrix:
    """Return the signed z of the test window relative to the mean and standard deviation of the reference."""
    mean, sd = mean_and_sd(windows.reference)
    return deviations(windows.values, mean, with_metric_floor(sd, windows.series), windows.absent)


def cut_window_after(
    episode: EpisodeView, alarm_ns: int, step_s: float, *, before: int = 1, steps: int | None = None
) -> TimeWindow:
    """Return the window from `before` steps before the alarm to `steps` after it, or to the end of the view."""
    start_ns, reference_end_ns = episode.reference
    window_start_ns = alarm_ns - round(before * step_s * SECOND_NS)
    end_ns = episode.window[1]
    if steps is not None:
        end_ns = min(end_ns, alarm_ns + round(steps * step_s * SECOND_NS))
    return TimeWindow(
        start_ns=window_start_ns,
        end_ns=end_ns,
        healthy_start_ns=start_ns,
        healthy_end_ns=min(reference_end_ns, window_start_ns),
    )


def list_step_ends(episode: EpisodeView) -> npt.NDArray[np.int64]:
    """Return the ends of the steps after the reference, for detectors without metrics."""
    start_ns, end_ns = episode.window
    step_ns = round(episode.context.resolution_s * SECOND_NS)
    ends = start_ns + step_ns * np.arange(1, math.ceil((end_ns - start_ns) / step_ns) + 1)
    return np.minimum(ends[ends > episode.reference[1]], end_ns)


def _cache_windows(
    episode: EpisodeView, step_s: float, reference_end_ns: int, values_start_ns: int, *, keep_constant: bool
) -> Windows:
    key = ("windows", step_s, reference_end_ns, values_start_ns, keep_constant)
    windows: Windows = episode.once(
        key, lambda: _read_windows(episode, step_s, reference_end_ns, values_start_ns, keep_constant=keep_constant)
    )
    comparable = not windows.empty and len(windows.reference) >= MIN_HEALTHY
    episode.note_skipped_series(windows.left_out, comparable=comparable)
    return windows


def _read_windows(
    episode: EpisodeView, step_s: float, reference_end_ns: int, values_start_ns: int, *, keep_constant: bool
) -> Windows:
    wide: Any = read_wide(episode, step_s)
    recorded = np.isfinite(wide.to_numpy(dtype=float)).any(axis=1)
    if not recorded.all():
        wide = wide.loc[recorded & ~_find_gap_borders(recorded)]
    windows = cut_windows(
        wide.iloc[:, _find_health_columns(wide.columns, episode.catalogue)],
        step_ns=round(step_s * SECOND_NS),
        reference_end_ns=reference_end_ns,
        values_start_ns=values_start_ns,
        services=episode.services,
        keep_constant=keep_constant,
    )
    # The last step may be cut short by the end of the view.
    windows = replace(windows, times_ns=np.minimum(windows.times_ns, episode.window[1]))
    for matrix in (windows.reference, windows.values, windows.absent, windows.times_ns):
        matrix.flags.writeable = False
    return windows


def _find_gap_borders(recorded: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the steps before and after a gap of all series, which may lack samples.

    If all series stop at once, the collector failed. Gaps of up to `FILL_STEPS` steps may be late samples.
    """
    steps = np.flatnonzero(recorded)
    long = np.flatnonzero(np.diff(steps) > FILL_STEPS + 1)
    borders = np.zeros(len(recorded), dtype=bool)
    borders[steps[long]] = borders[steps[long + 1]] = True
    return borders


def _find_health_columns(columns: pd.Index, catalogue: Catalogue) -> npt.NDArray[np.intp]:
    """Return the positions of columns whose metric can be a sign of health."""
    codes, metrics = _encode_level(columns, _METRIC)
    healthy = [is_health_metric(metric, catalogue.role_of(metric)) for metric in metrics]
    return np.flatnonzero(np.array(healthy, dtype=bool)[codes])


def _encode_level(columns: pd.Index, level: int) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Return a code for each column, and the name of each code."""
    index: Any = columns
    return np.asarray(index.codes[level], dtype=np.intp), [str(name) for name in index.levels[level]]


def cut_windows(
    wide: pd.DataFrame,
    *,
    step_ns: int,
    reference_end_ns: int,
    values_start_ns: int,
    services: Collection[str] | None = None,
    max_missing_share: float = MAX_MISSING_SHARE,
    keep_constant: bool = True,
) -> Windows:
    """Split a wide frame, indexed by the start of each step, into a reference and a test window.

    Rows that end after `reference_end_ns` are not healthy. Series are dropped if more than `max_missing_share` of their
    reference is missing, or if they are constant and `keep_constant` is false. One missing sample is tolerated if two
    remain, because a sample that is a second late may fall into the next step. Columns are sorted.
    """
    starts = np.asarray(wide.index.as_unit("ns").asi8)  # type: ignore[attr-defined]
    healthy = starts + step_ns <= reference_end_ns
    in_test_window = starts + step_ns > values_start_ns
    (owners, names), (of_metric, metrics) = _encode_level(wide.columns, _SERVICE), _encode_level(wide.columns, _METRIC)
    columns = sorted(
        (names[owner], metrics[metric], position)
        for position, (owner, metric) in enumerate(zip(owners.tolist(), of_metric.tolist(), strict=True))
        if services is None or names[owner] in services
    )
    raw = wide.to_numpy(dtype=float)[:, [position for _, _, position in columns]]
    present = np.isfinite(raw)
    chance_gap = _compute_longest_chance_gap(present[healthy])
    usable = _is_complete(present[healthy], max_missing_share)
    if not keep_constant:
        usable &= ~_is_constant(raw, present)
    if not usable.all():
        raw, present = raw[:, usable], present[:, usable]
    filled, absent = _fill_gaps(raw, present, healthy, chance_gap)
    return Windows(
        series=tuple((service, metric) for (service, metric, _), keep in zip(columns, usable, strict=True) if keep),
        step_ns=step_ns,
        reference=filled[healthy],
        values=filled[in_test_window],
        absent=absent[in_test_window],
        left_out=tuple(
            (service, metric) for (service, metric, _), keep in zip(columns, usable, strict=True) if not keep
        ),
        times_ns=starts[in_test_window] + step_ns,
    )


def _fill_gaps(
    raw: npt.NDArray[np.float64], present: npt.NDArray[np.bool_], healthy: npt.NDArray[np.bool_], chance_gap: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the values with short gaps filled, and which samples are in a gap that is longer than any healthy gap."""
    if present.all():
        return raw, np.zeros(raw.shape, dtype=bool)
    rows = np.arange(len(present))[:, None]
    last = np.maximum.accumulate(np.where(present, rows, -1), axis=0)
    gap = rows - last
    fillable = (last >= 0) & (gap <= FILL_STEPS)
    filled = np.where(fillable, np.take_along_axis(raw, np.maximum(last, 0), axis=0), np.nan)
    return filled, gap > np.maximum(gap[healthy].max(axis=0, initial=0), max(FILL_STEPS, chance_gap))


def _is_complete(present: npt.NDArray[np.bool_], max_missing_share: float) -> npt.NDArray[np.bool_]:
    """Return which columns of the reference have enough samples."""
    rows = len(present)
    count = present.sum(axis=0)
    return (count >= min(rows, MIN_HEALTHY)) & (count >= rows - max(1, max_missing_share * rows)) & (rows > 0)


def _compute_longest_chance_gap(present: npt.NDArray[np.bool_]) -> float:
    """Return the longest gap that random loss of samples would explain, at the median loss of all series.

    At a given step, any of the series has a longer gap with probability `LEVEL`.
    """
    started = np.logical_or.accumulate(present, axis=0).sum(axis=0)
    loss = float(np.median(1 - present.sum(axis=0)[started > 0] / started[started > 0])) if started.any() else 0.0
    return math.log(len(started) / LEVEL) / -math.log(loss) if loss > 0 else 0.0


def _is_constant(raw: Matrix, present: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which columns are constant and have only gaps short enough to be filled."""
    constant = ~varies(raw)
    missing = ~present[:, constant]
    for _ in range(FILL_STEPS):
        missing = missing[1:] & missing[:-1]
    constant[constant] = ~missing.any(axis=0)
    return constant


SUSTAINED_STEPS = 3


def most_deviating(episode: EpisodeView, windows: Windows, z: Matrix, *, per_service: int) -> list[int]:
    """Return up to `per_service` series of each service with the largest lasting deviations, at most one per role.

    Parameters
    ----------
    z
        [T, d] test window as z-scores of the reference.

    Returns
    -------
    list of int
        Columns in order, without series that never deviate.
    """
    lasting = sustained(z, min(SUSTAINED_STEPS, len(z))).max(axis=0)
    role = episode.catalogue.role_of
    roles_by_service: dict[str, set[str]] = {}
    chosen: list[int] = []
    for column in sorted(range(len(windows.series)), key=lambda number: (-lasting[number], windows.series[number])):
        service, metric = windows.series[column]
        roles = roles_by_service.setdefault(service, set())
        if lasting[column] > 0 and len(roles) < per_service and role(metric) not in roles:
            roles.add(role(metric))
            chosen.append(column)
    return sorted(chosen)
