"""A few streams instead of hundreds of series: how far each kind of signal of each service is from normal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from faultset.baselines.features.held_out import CLIP, LEAST_SAMPLES, HeldOut, held_out_deviations
from faultset.baselines.features.windows import Windows, detection_windows
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.core.times import SECOND_NS
from faultset.datasets.metrics.roles import ROLES

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

SIGNALS = {
    "cpu": "resources",
    "throttling": "resources",
    "memory": "resources",
    "disk": "resources",
    "threads": "resources",
    "descriptors": "resources",
    "network": "network",
    "traffic": "traffic",
    "latency": "quality",
    "errors": "quality",
    "saturation": "quality",
}
"""Five signals of the system as a whole; every other role is its state."""
STATE = "state"


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Largest |z| over the series of each stream, as log(1 + |z|)."""

    names: tuple[tuple[str, str], ...]
    normal: Matrix
    """[n, p] the reference, held out."""
    values: Matrix
    """[T, p]"""

    @property
    def both(self) -> Matrix:
        """[n + T, p] in order of time."""
        return np.vstack([self.normal, self.values])


def service_roles(episode: EpisodeView, found: HeldOut) -> Streams:
    """One stream for each service and role."""
    role = _role_of(episode)
    return _streams(found, lambda service, metric: (service, role(metric)))


def services(found: HeldOut) -> Streams:
    """One stream for each service."""
    return _streams(found, lambda service, _: (service, ""))


def system_signals(episode: EpisodeView, found: HeldOut) -> Streams:
    """One stream for each of five signals, over all services."""
    role = _role_of(episode)
    return _streams(found, lambda service, metric: ("", SIGNALS.get(role(metric), STATE)))


def _role_of(episode: EpisodeView) -> Callable[[str], str]:
    catalogue = episode.catalogue
    roles: dict[str, str] = {}

    def role(metric: str) -> str:
        if metric not in roles:
            roles[metric] = catalogue.role_of(metric)
        return roles[metric]

    return role


def _streams(found: HeldOut, stream_of: Callable[[str, str], tuple[str, str]]) -> Streams:
    keys = [stream_of(service, metric) for service, metric in found.windows.series]
    names = sorted(set(keys))
    position = {name: number for number, name in enumerate(names)}
    code = np.array([position[key] for key in keys])
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(len(names)))
    normal, values = (
        np.log1p(np.maximum.reduceat(np.abs(z)[:, order], starts, axis=1)) for z in (found.normal, found.z)
    )
    return Streams(names=tuple(names), normal=normal, values=values)


@dataclass(frozen=True, kw_only=True)
class RoleVectors:
    """log(1 + largest |z|) over the series of each role of each service; 0 where it has none."""

    windows: Windows
    services: tuple[str, ...]
    vectors: Matrix
    """[n + T, S, R] in order of time: the reference, each block by the others, then what follows it."""

    @property
    def healthy(self) -> int:
        """Number of steps of the reference."""
        return len(self.windows.reference)


def role_vectors(episode: EpisodeView) -> RoleVectors | None:
    """Read an episode's role vectors; None when there are too few healthy samples to hold any out.

    A view that ends with its reference has only healthy steps.
    """
    return episode.once("role vectors", lambda: _role_vectors(episode))


def _role_vectors(episode: EpisodeView) -> RoleVectors | None:
    windows = detection_windows(episode)
    if not windows.series or len(windows.reference) < LEAST_SAMPLES:
        return None
    mean, sd = mean_and_sd(windows.reference)
    later = deviations(windows.values, mean, with_metric_floor(sd, windows.series), windows.absent)
    z = np.vstack([held_out_deviations(windows.reference, windows.series), np.clip(later, -CLIP, CLIP)])
    role_of = episode.catalogue.role_of
    services = sorted(set(windows.services))
    position = {name: number for number, name in enumerate(services)}
    code = np.array([position[s] * len(ROLES) + ROLES.index(role_of(metric)) for s, metric in windows.series])
    order = np.argsort(code, kind="stable")
    found, starts = np.unique(code[order], return_index=True)
    vectors = np.zeros((len(z), len(services) * len(ROLES)))
    vectors[:, found] = np.log1p(np.maximum.reduceat(np.abs(z)[:, order], starts, axis=1))
    vectors = vectors.reshape(len(z), len(services), len(ROLES))
    vectors.flags.writeable = False
    return RoleVectors(windows=windows, services=tuple(services), vectors=vectors)


def healthy_sequences(episodes: Sequence[EpisodeView]) -> list[Matrix]:
    """Return [steps, R] of every service of every training episode; none of a service without series."""
    read = [found for found in map(role_vectors, episodes) if found is not None]
    return [found.vectors[:, service] for found in read for service in range(len(found.services))]


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
        step = np.full(int(self.kept[-1]) + 2 if self.count else 1, -1)
        step[self.kept] = np.arange(self.count)
        return step[np.where(inside, np.minimum((times_ns - self.start_ns) // self.step_ns, len(step) - 1), -1)]

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
    recorded = np.flatnonzero(~episode.silent_steps(step_ns))
    return Steps(
        start_ns=start_ns,
        step_ns=step_ns,
        kept=recorded,
        healthy=int(np.searchsorted(recorded, (episode.reference[1] - start_ns) // step_ns)),
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
    step = np.arange(len(counts))[:, None]
    last = np.maximum.accumulate(np.where(counts > 0, step, -1), axis=0)
    following = np.minimum.accumulate(np.where(counts > 0, step, len(counts))[::-1], axis=0)[::-1]
    first = following[np.maximum(step[:, 0] - steps + 1, 0)]
    return np.maximum(last - first, 0)


def silences(counts: Ints) -> Ints:
    """Steps without a row, up to and with each step.

    >>> silences(np.array([[1], [0], [0], [2]])).ravel().tolist()
    [0, 1, 2, 0]
    """
    number = np.arange(1, len(counts) + 1)[:, None]
    return number - np.maximum.accumulate(np.where(counts > 0, number, 0), axis=0)


def idle_share(counts: Ints) -> Matrix:
    """[kinds] share of the steps without a row, never 0 and never 1."""
    return ((counts == 0).sum(axis=0) + 0.5) / (len(counts) + 1)


def excess_surprise(found: Ints, among: Ints, share: Matrix) -> Matrix:
    """-log10 of the probability of so many or more among these, at the healthy share."""
    some = found > 0
    number = np.where(some, found, 1)
    tail = betainc(number, among - number + 1.0, share)
    return np.where(some, -np.log10(np.maximum(tail, _IMPOSSIBLE)), 0.0)
