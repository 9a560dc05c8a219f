"""Reference and test windows of an episode's metrics, as matrices that every method can compare.

Windows are counted in samples, because papers that scrape every 15 s and a platform that scrapes every
second mean the same thing by "40 samples". The resolution is the sampling step, or one sixtieth of the
reference where that is longer.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.baselines.scaling import Matrix

if TYPE_CHECKING:
    import pandas as pd

    from faultset.datasets.views import EpisodeView

SECOND_NS = 1_000_000_000
FILL_STEPS = 2
MOST_MISSING = 0.2
# What a clock shows, a limit allows or a scrape costs is no sign of health.
UNTOLD_ROLES = frozenset({"clock", "limits", "scrape"})


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Metrics of one episode on a regular grid, cut into a healthy and a questioned part."""

    series: tuple[tuple[str, str], ...]
    """(service, metric) of each column."""
    step_ns: int
    reference: Matrix
    """[n, d]"""
    values: Matrix
    """[T, d] the questioned part; gaps of up to two steps are filled with the last value."""
    absent: npt.NDArray[np.bool_]
    """[T, d] a series that the reference has without such gaps has stopped for three steps or more."""
    times_ns: npt.NDArray[np.int64]
    """[T] end of each step of `values`: everything in a row was known then."""

    @property
    def services(self) -> list[str]:
        """Service of each column."""
        return [service for service, _ in self.series]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compare."""
        return not self.series or len(self.reference) == 0 or len(self.values) == 0


def resolution_s(step_s: float, reference_s: float) -> float:
    """Choose the grid step: at most 60 samples of reference, and whole sampling steps in each.

    >>> resolution_s(1, 36), resolution_s(1, 144), resolution_s(5, 240), resolution_s(15, 600)
    (1, 3, 5, 15)
    """
    return step_s * max(1, math.ceil(round(reference_s / 60 / step_s, 6)))


def sampling_step_s(episode: EpisodeView) -> float:
    """Interval at which metrics of the episode were sampled; one second where the context does not say."""
    return episode.context.source_intervals_s.get("metrics") or 1.0


def episode_resolution_s(episode: EpisodeView) -> float:
    """Grid step for an episode."""
    start_ns, end_ns = episode.reference
    return resolution_s(sampling_step_s(episode), (end_ns - start_ns) / SECOND_NS)


def detection_windows(episode: EpisodeView) -> Windows:
    """Give a detector the reference and everything after it."""
    _, reference_end_ns = episode.reference
    return _windows(episode, episode_resolution_s(episode), reference_end_ns, reference_end_ns)


def localization_windows(
    episode: EpisodeView, alarm_ns: int, *, before: int = 2, step_s: float | None = None
) -> Windows:
    """Give a localizer the reference up to the alarm, and the view from `before` steps ahead of the alarm.

    An alarm stands after two anomalous samples, which are part of what is to be explained.
    """
    _, reference_end_ns = episode.reference
    step = step_s or episode_resolution_s(episode)
    start_ns = alarm_ns - round(before * step * SECOND_NS)
    return _windows(episode, step, min(reference_end_ns, alarm_ns), start_ns)


def _windows(episode: EpisodeView, step_s: float, reference_end_ns: int, values_start_ns: int) -> Windows:
    from faultset.datasets.roles import builtin_catalogue

    wide = episode.wide(step_s=step_s)
    catalogue = builtin_catalogue().extended(episode.context.metric_roles)
    known = [
        position
        for position, (service, metric) in enumerate(wide.columns)
        if isinstance(service, str) and catalogue.role_of(metric) not in UNTOLD_ROLES
    ]
    return cut(
        wide.iloc[:, known],
        step_ns=round(step_s * SECOND_NS),
        reference_end_ns=reference_end_ns,
        values_start_ns=values_start_ns,
        services=episode.services,
    )


def cut(
    wide: pd.DataFrame,
    *,
    step_ns: int,
    reference_end_ns: int,
    values_start_ns: int,
    services: Collection[str] | None = None,
    most_missing: float = MOST_MISSING,
) -> Windows:
    """Cut a wide frame, whose index holds the start of each step, into reference and questioned part.

    Rows that are not wholly before `reference_end_ns` do not count as healthy. Series with more than
    `most_missing` of the reference missing are dropped, and columns are sorted, so that their order cannot
    matter.
    """
    starts = np.asarray(wide.index.as_unit("ns").asi8)  # type: ignore[attr-defined]
    healthy = starts + step_ns <= reference_end_ns
    questioned = starts + step_ns > values_start_ns
    columns = sorted(
        (str(service), str(metric), position)
        for position, (service, metric) in enumerate(wide.columns)
        if services is None or service in services
    )
    raw = wide.to_numpy(dtype=float)[:, [position for _, _, position in columns]]
    present = np.isfinite(raw)
    kept = present[healthy].mean(axis=0) >= 1 - most_missing if healthy.any() else np.zeros(len(columns), bool)
    raw, present = raw[:, kept], present[:, kept]
    gap = _steps_since_sample(present)
    longest = np.maximum(gap[healthy].max(axis=0, initial=0), FILL_STEPS)
    filled = np.where(gap <= FILL_STEPS, _last_sample(raw, present), np.nan)
    return Windows(
        series=tuple((service, metric) for (service, metric, _), keep in zip(columns, kept, strict=True) if keep),
        step_ns=step_ns,
        reference=filled[healthy],
        values=filled[questioned],
        absent=(gap > longest)[questioned],
        times_ns=starts[questioned] + step_ns,
    )


def _steps_since_sample(present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    rows = np.arange(len(present))[:, None]
    last = np.maximum.accumulate(np.where(present, rows, -1), axis=0)
    return rows - last


def _last_sample(raw: Matrix, present: npt.NDArray[np.bool_]) -> Matrix:
    rows = np.arange(len(raw))[:, None]
    last = np.maximum.accumulate(np.where(present, rows, -1), axis=0)
    taken = np.take_along_axis(raw, np.maximum(last, 0), axis=0) if len(raw) else raw
    return np.where(last >= 0, taken, np.nan)
