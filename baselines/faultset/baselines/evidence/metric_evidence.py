"""Evidence from metrics as -log10 of the probability that it occurs by chance."""

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

LOCAL_ROLES = frozenset({"cpu", "throttling", "memory", "disk", "restarts", "state", "threads", "descriptors"})
"""Roles that change only in the faulty service; other roles also change in its callers."""
UPWARDS = frozenset({"latency"})
"""Roles for which only an increase is evidence."""
WEIGHTS = {"traffic": 0.25, "network": 0.5}
"""Weights of roles that change with the load."""
BLOCKS = 5
"""Minimum number of blocks in the reference, if it has enough samples."""
MAX_DEGREES_OF_FREEDOM = 4
"""Maximum degrees of freedom, because real metrics have heavy tails."""
STOPPED_SHARE = 0.8
"""Share of the series of a service that must stop to count as evidence."""
SILENCE = 4.0
"""Strength of the evidence against a stopped service, multiplied by the share of services that did not stop."""
_LN10 = float(np.log(10.0))


@dataclass(frozen=True, kw_only=True)
class ServiceEvidence:
    """One piece of evidence against a service."""

    service: str
    subject: str
    strength: float
    """-log10 of the probability that it occurs by chance, corrected for the number of comparisons."""
    local: bool
    """Whether it is evidence against the service itself, and cannot be a symptom of a called service."""
    detail: str


def metric_evidence(
    episode: EpisodeView, alarm_ns: int, rollouts: Mapping[str, Rollout] = MappingProxyType({})
) -> list[ServiceEvidence]:
    """Return the most surprising series of each service and role since an alarm, compared with the reference.

    Evidence against services whose series stopped is added. If more than two services have series of a role, the
    median over services is subtracted, so that a change of all services, such as more load, does not count.

    Parameters
    ----------
    rollouts
        Service -> its rollout. Samples during a rollout are ignored, because they mix old and new pods.
    """
    gap_s = (alarm_ns - episode.reference[1]) / SECOND_NS
    windows = localization_windows(episode, alarm_ns, before=max(1, math.ceil(gap_s / episode.context.resolution_s)))
    recent = windows.times_ns > alarm_ns
    if windows.empty or len(windows.reference) < 2 or not recent.any():
        return []
    owners = np.array(windows.services)
    windows = _remove_rollouts(windows, episode.window[0], owners, rollouts)
    roles = np.array([episode.catalogue.role_of(metric) for _, metric in windows.series])
    z, freedom, blocks = _compute_block_deviations(windows, recent)
    z = np.where(np.isin(roles, sorted(UPWARDS)), np.maximum(z, 0.0), np.abs(z))
    surprise = -(stats.t.logsf(z, freedom) + np.log(2.0)) / _LN10 - np.log10(blocks)
    gone = windows.absent[recent].mean(axis=0) > 0.5
    evidence = _weigh_stopped_series(owners, gone)
    # Ignore constant series, so that their number does not matter.
    usable = _find_varying_series(windows) & ~gone
    for role in np.unique(roles):
        best: dict[str, tuple[float, int]] = {}
        for service in np.unique(owners[roles == role]):
            columns = np.flatnonzero((owners == service) & (roles == role) & usable)
            if len(columns):
                column = int(columns[np.argmax(surprise[columns])])
                best[str(service)] = (float(surprise[column] - np.log10(len(columns))), column)
        usual = max(0.0, float(np.median([value for value, _ in best.values()]))) if len(best) > 2 else 0.0
        evidence += [
            ServiceEvidence(
                service=service,
                subject=windows.series[column][1],
                strength=(value - usual) * WEIGHTS.get(str(role), 1.0),
                local=role in LOCAL_ROLES,
                detail=f"{role}, {z[column]:.1f} sigmas from the reference",
            )
            for service, (value, column) in best.items()
            if value > usual
        ]
    return evidence


def _find_varying_series(windows: Windows) -> npt.NDArray[np.bool_]:
    """Return whether each series has more than one value."""
    samples = np.vstack([windows.reference, windows.values])
    present = np.isfinite(samples)
    return np.where(present, samples, -np.inf).max(axis=0) > np.where(present, samples, np.inf).min(axis=0)


def _remove_rollouts(
    windows: Windows, start_ns: int, owners: npt.NDArray[np.str_], rollouts: Mapping[str, Rollout]
) -> Windows:
    """Remove the samples of services during their rollout and one step after it."""
    if not rollouts:
        return windows
    reference, values = windows.reference.copy(), windows.values.copy()
    healthy_ns = start_ns + windows.step_ns * np.arange(1, len(reference) + 1)
    for service, rollout in rollouts.items():
        for matrix, times_ns in ((reference, healthy_ns), (values, windows.times_ns)):
            rows = (times_ns > rollout.start_ns) & (times_ns <= rollout.end_ns + 2 * windows.step_ns)
            matrix[np.ix_(rows, owners == service)] = np.nan
    return replace(windows, reference=reference, values=values)


def _compute_block_deviations(windows: Windows, recent: npt.NDArray[np.bool_]) -> tuple[Matrix, int, int]:
    """Return the largest deviation of a block since the alarm, the degrees of freedom, and the number of blocks.

    A block is as long as the time since the alarm, but at most a fifth of the reference. Deviations are measured from
    the reference and from the level right after it. The smaller deviation counts, because the reference may be from a
    different day. If the two have different signs, the deviation is 0.
    """
    values = windows.values[recent]
    length = max(1, min(len(values), len(windows.reference) // BLOCKS))
    healthy, blocks = _compute_block_medians(windows.reference, length), _compute_block_medians(values, length)
    mean, sd = mean_and_sd(healthy, ddof=1)
    scale = with_metric_floor(sd, windows.series) * np.sqrt(1 + 1 / len(healthy))
    never_absent = np.zeros(blocks.shape, dtype=bool)
    z = deviations(blocks, mean, scale, never_absent)
    between = windows.values[~recent]
    if len(between):
        # The half next to the reference is healthy even if the alarm is late.
        level = np.median(np.where(np.isfinite(between), between, mean)[: math.ceil(len(between) / 2)], axis=0)
        shift = deviations(blocks, level, scale, never_absent)
        z = np.where(np.sign(z) == np.sign(shift), np.sign(z) * np.minimum(np.abs(z), np.abs(shift)), 0.0)
    largest = np.take_along_axis(z, np.abs(z).argmax(axis=0)[None], axis=0)[0]
    return largest, max(1, min(MAX_DEGREES_OF_FREEDOM, len(healthy) - 1)), len(blocks)


def _compute_block_medians(rows: Matrix, length: int) -> Matrix:
    """Return the medians of consecutive blocks; the last block ends with the last row."""
    first = len(rows) % length if len(rows) > length else 0
    cut = rows[first : first + len(rows) // length * length].reshape(-1, length, rows.shape[1])
    measured = np.asarray(np.isfinite(cut).any(axis=1))
    middle = np.nanmedian(np.where(measured[:, None, :], cut, 0.0), axis=1)
    return np.where(measured, middle, np.nan)


def _weigh_stopped_series(owners: npt.NDArray[np.str_], gone: npt.NDArray[np.bool_]) -> list[ServiceEvidence]:
    """Return evidence against services whose series stopped; the more services stopped, the weaker it is."""
    services = np.unique(owners)
    silent = [str(name) for name in services if gone[owners == name].mean() >= STOPPED_SHARE]
    strength = SILENCE * (1 - len(silent) / len(services))
    return [
        ServiceEvidence(service=name, subject="metrics", strength=strength, local=True, detail="series stopped")
        for name in silent
        if strength > 0
    ]
