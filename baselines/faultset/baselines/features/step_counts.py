"""Rows of logs and traces counted in the steps of an episode's grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from faultset.baselines.stats.scaling import Matrix
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Ints = npt.NDArray[np.int64]
_IMPOSSIBLE = 1e-300
RECENT = 5
"""Steps that are looked at together: rows are rarer than samples."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The grid over a view; the last step may be cut short by the view's end.

    Steps in which the collector was away are left out, as if no time had passed: silence says nothing then.
    """

    start_ns: int
    step_ns: int
    kept: Ints
    """Places on the whole grid of the steps that were recorded."""
    healthy: int
    """Recorded steps that lie within the reference."""
    view_end_ns: int

    @property
    def count(self) -> int:
        """Number of recorded steps."""
        return len(self.kept)

    @property
    def times_ns(self) -> Ints:
        """[T] end of each step after the reference."""
        ends = self.start_ns + self.step_ns * (self.kept[self.healthy :] + 1)
        return np.minimum(ends, self.view_end_ns)

    def of(self, times_ns: Ints) -> Ints:
        """Step of each instant; -1 outside of the view."""
        inside = (times_ns >= self.start_ns) & (times_ns < self.view_end_ns)
        place = np.full(int(self.kept[-1]) + 2 if self.count else 1, -1)
        place[self.kept] = np.arange(self.count)
        return place[np.where(inside, np.minimum((times_ns - self.start_ns) // self.step_ns, len(place) - 1), -1)]

    def counts(self, times_ns: Ints, keys: Ints, kinds: int, weights: npt.NDArray | None = None) -> Ints:
        """[count, kinds] rows of each key in each step; negative keys do not count."""
        step = self.of(times_ns)
        used = (step >= 0) & (keys >= 0)
        cell = step[used] * kinds + keys[used]
        chosen = None if weights is None else weights[used]
        size = self.count * kinds
        return np.bincount(cell, weights=chosen, minlength=size).reshape(self.count, kinds).astype(np.int64)


def steps_of(episode: EpisodeView) -> Steps:
    """Lay the grid of an episode's metrics over its view."""
    start_ns, end_ns = episode.window
    step_ns = round(episode.context.resolution_s * SECOND_NS)
    kept = np.flatnonzero(~episode.silent_steps(step_ns))
    return Steps(
        start_ns=start_ns,
        step_ns=step_ns,
        kept=kept,
        healthy=int(np.searchsorted(kept, (episode.reference[1] - start_ns) // step_ns)),
        view_end_ns=end_ns,
    )


def recent_sums(counts: Ints, steps: int = RECENT) -> Ints:
    """[count, kinds] sum over each step and those before it, `steps` in all; fewer at the beginning."""
    total = np.cumsum(counts, axis=0)
    total[steps:] -= total[:-steps].copy()
    return total


def recent_durations(counts: Ints, steps: int = RECENT) -> Ints:
    """[count, kinds] steps from the first to the last with a row, among each step and those before it, `steps` in all.

    >>> recent_durations(np.array([[1], [0], [0], [2], [0], [3]]), 4).ravel().tolist()
    [0, 0, 0, 3, 0, 2]
    """
    place = np.arange(len(counts))[:, None]
    last = np.maximum.accumulate(np.where(counts > 0, place, -1), axis=0)
    following = np.minimum.accumulate(np.where(counts > 0, place, len(counts))[::-1], axis=0)[::-1]
    first = following[np.maximum(place[:, 0] - steps + 1, 0)]
    return np.maximum(last - first, 0)


def silences(counts: Ints) -> Ints:
    """Steps without a row, up to and with each step.

    >>> silences(np.array([[1], [0], [0], [2]])).ravel().tolist()
    [0, 1, 2, 0]
    """
    place = np.arange(1, len(counts) + 1)[:, None]
    return place - np.maximum.accumulate(np.where(counts > 0, place, 0), axis=0)


def idle_share(counts: Ints) -> Matrix:
    """[kinds] share of the steps without a row, never 0 and never 1."""
    return ((counts == 0).sum(axis=0) + 0.5) / (len(counts) + 1)


def excess_surprise(found: Ints, among: Ints, share: Matrix) -> Matrix:
    """-log10 of the probability of so many or more among these, at the healthy share."""
    some = found > 0
    number = np.where(some, found, 1)
    tail = betainc(number, among - number + 1.0, share)
    return np.where(some, -np.log10(np.maximum(tail, _IMPOSSIBLE)), 0.0)
