"""What the metrics of each service say against it, as -log10 of its probability by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import stats

from faultset.baselines.features.object_states import Rollout
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

OWN_ROLES = frozenset({"cpu", "throttling", "memory", "disk", "restarts", "state", "threads", "descriptors"})
"""What moves where a fault is; the rest also moves in services that call it."""
UPWARDS = frozenset({"latency"})
WEIGHTS = {"traffic": 0.25, "network": 0.5}
"""Of roles that move with what users ask for."""
BLOCKS = 5
"""The reference is cut into at least so many blocks, where it has so many samples."""
MOST_FREEDOM = 4
"""Degrees of freedom at most: tails of real metrics are heavy, however long the reference is."""
STOPPED = 0.8
SILENCE = 4.0
_LN10 = float(np.log(10.0))


@dataclass(frozen=True, kw_only=True)
class ServiceEvidence:
    """One thing that speaks against a service."""

    service: str
    subject: str
    strength: float
    """Powers of ten by which chance is unlikely, given how many things of the sort were looked at."""
    own: bool
    """Whether it cannot be the symptom of a service that is called."""
    detail: str


def metric_evidence(
    episode: EpisodeView, alarm_ns: int, rollouts: Mapping[str, Rollout] = MappingProxyType({})
) -> list[ServiceEvidence]:
    """Compare the metrics since an alarm with blocks of the reference, the most surprising series of each role.

    What all services show alike, such as more load, speaks against none: the median over services is taken off.

    Parameters
    ----------
    rollouts
        Service -> when its pods were replaced as planned. Metrics of the old and the new ones together say nothing.
    """
    gap_s = (alarm_ns - episode.reference[1]) / SECOND_NS
    windows = localization_windows(episode, alarm_ns, before=max(1, math.ceil(gap_s / episode.context.resolution_s)))
    since = windows.times_ns > alarm_ns
    if windows.empty or len(windows.reference) < 2 or not since.any():
        return []
    owners = np.array(windows.services)
    windows = _without_rollouts(windows, episode.window[0], owners, rollouts)
    roles = np.array([episode.catalogue.role_of(metric) for _, metric in windows.series])
    z, freedom, blocks = _block_deviations(windows, since)
    z = np.where(np.isin(roles, sorted(UPWARDS)), np.maximum(z, 0.0), np.abs(z))
    surprise = -(stats.t.logsf(z, freedom) + np.log(2.0)) / _LN10 - np.log10(blocks)
    gone = windows.absent[since].mean(axis=0) > 0.5
    evidence = _stopped(owners, gone)
    # settings that never change are not looked at, so that it does not matter how many there are
    everything = np.vstack([windows.reference, windows.values])
    present = np.isfinite(everything)
    highest, lowest = (
        np.where(present, everything, -np.inf).max(axis=0),
        np.where(present, everything, np.inf).min(axis=0),
    )
    moves = (highest > lowest) & ~gone
    for role in np.unique(roles):
        best: dict[str, tuple[float, int]] = {}
        for service in np.unique(owners[roles == role]):
            columns = np.flatnonzero((owners == service) & (roles == role) & moves)
            if len(columns):
                column = int(columns[np.argmax(surprise[columns])])
                best[str(service)] = (float(surprise[column] - np.log10(len(columns))), column)
        usual = max(0.0, float(np.median([value for value, _ in best.values()]))) if len(best) > 2 else 0.0
        evidence += [
            ServiceEvidence(
                service=service,
                subject=windows.series[column][1],
                strength=(value - usual) * WEIGHTS.get(str(role), 1.0),
                own=role in OWN_ROLES,
                detail=f"{role}, {z[column]:.1f} spreads from the reference",
            )
            for service, (value, column) in best.items()
            if value > usual
        ]
    return evidence


def _without_rollouts(
    windows: Windows, start_ns: int, owners: npt.NDArray[np.str_], rollouts: Mapping[str, Rollout]
) -> Windows:
    """Take out the steps in which a service has pods of two kinds, and the one after."""
    if not rollouts:
        return windows
    reference, values = windows.reference.copy(), windows.values.copy()
    healthy_ns = start_ns + windows.step_ns * np.arange(1, len(reference) + 1)
    for service, rollout in rollouts.items():
        for matrix, times_ns in ((reference, healthy_ns), (values, windows.times_ns)):
            rows = (times_ns > rollout.begin_ns) & (times_ns <= rollout.end_ns + 2 * windows.step_ns)
            matrix[np.ix_(rows, owners == service)] = np.nan
    return replace(windows, reference=reference, values=values)


def _block_deviations(windows: Windows, since: npt.NDArray[np.bool_]) -> tuple[Matrix, int, int]:
    """Return the largest deviation of a block since the alarm, the degrees of freedom, and how many blocks there were.

    A block is as long as the time since the alarm, or a fifth of the reference where that is shorter: what lasts is
    compared with what lasted. What counts is the smaller of the moves from the reference and from the level right after
    it: the reference may be of another day, with other levels.
    """
    values = windows.values[since]
    length = max(1, min(len(values), len(windows.reference) // BLOCKS))
    healthy, blocks = _medians(windows.reference, length), _medians(values, length)
    mean, sd = mean_and_sd(healthy, ddof=1)
    scale = with_metric_floor(sd, windows.series) * np.sqrt(1 + 1 / len(healthy))
    present = np.zeros(blocks.shape, dtype=bool)
    z = deviations(blocks, mean, scale, present)
    between = windows.values[~since]
    if len(between):
        # the half next to the reference is free of the fault even where the alarm comes late
        level = np.median(np.where(np.isfinite(between), between, mean)[: math.ceil(len(between) / 2)], axis=0)
        moved = deviations(blocks, level, scale, present)
        z = np.where(np.sign(z) == np.sign(moved), np.sign(z) * np.minimum(np.abs(z), np.abs(moved)), 0.0)
    largest = np.take_along_axis(z, np.abs(z).argmax(axis=0)[None], axis=0)[0]
    return largest, max(1, min(MOST_FREEDOM, len(healthy) - 1)), len(blocks)


def _medians(rows: Matrix, length: int) -> Matrix:
    """Return the medians of blocks that follow each other, the last one ending with the last row."""
    first = len(rows) % length if len(rows) > length else 0
    cut = rows[first : first + len(rows) // length * length].reshape(-1, length, rows.shape[1])
    measured = np.asarray(np.isfinite(cut).any(axis=1))
    middle = np.nanmedian(np.where(measured[:, None, :], cut, 0.0), axis=1)
    return np.where(measured, middle, np.nan)


def _stopped(owners: npt.NDArray[np.str_], gone: npt.NDArray[np.bool_]) -> list[ServiceEvidence]:
    """Name services whose series have stopped, unless those of most have, which is the collector's doing."""
    services = np.unique(owners)
    silent = [str(name) for name in services if gone[owners == name].mean() >= STOPPED]
    strength = SILENCE * (1 - len(silent) / len(services))
    return [
        ServiceEvidence(service=name, subject="metrics", strength=strength, own=True, detail="they have stopped")
        for name in silent
        if strength > 0
    ]
