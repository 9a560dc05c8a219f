"""Streams that summarise hundreds of series by service and role, and counts of rows per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from faultset.baselines.features.held_out import CLIP, MIN_SAMPLES, HeldOut, hold_out_deviations
from faultset.baselines.features.windows import Windows, detection_windows, measure_deviations
from faultset.baselines.stats.scaling import Matrix
from faultset.core.times import SECOND_NS
from faultset.datasets.metrics.roles import ROLES
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
"""Role -> signal of the whole system; other roles count as state."""
STATE = "state"


@dataclass(frozen=True, kw_only=True)
class Streams:
    """log(1 + largest |z|) over the series of each stream."""

    names: tuple[tuple[str, str], ...]
    normal: Matrix
    """[n, p] held-out reference."""
    values: Matrix
    """[T, p]"""

    @property
    def both(self) -> Matrix:
        """Return the reference and the test window [n + T, p] in time order."""
        return np.vstack([self.normal, self.values])


def stream_service_roles(episode: EpisodeView, held_out: HeldOut) -> Streams:
    """Return a stream per service and role."""
    role = _cache_role_lookup(episode)
    return _build_streams(held_out, lambda service, metric: (service, role(metric)))


def stream_services(held_out: HeldOut) -> Streams:
    """Return a stream per service."""
    return _build_streams(held_out, lambda service, _: (service, ""))


def stream_signals(episode: EpisodeView, held_out: HeldOut) -> Streams:
    """Return a stream per signal over all services."""
    role = _cache_role_lookup(episode)
    return _build_streams(held_out, lambda service, metric: ("", SIGNALS.get(role(metric), STATE)))


def _cache_role_lookup(episode: EpisodeView) -> Callable[[str], str]:
    catalogue = episode.catalogue
    roles: dict[str, str] = {}

    def role(metric: str) -> str:
        if metric not in roles:
            roles[metric] = catalogue.role_of(metric)
        return roles[metric]

    return role


def _build_streams(held_out: HeldOut, stream_of: Callable[[str, str], tuple[str, str]]) -> Streams:
    keys = [stream_of(service, metric) for service, metric in held_out.windows.series]
    names = sorted(set(keys))
    position = {name: number for number, name in enumerate(names)}
    code = np.array([position[key] for key in keys])
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(len(names)))
    normal, values = (
        np.log1p(np.maximum.reduceat(np.abs(z)[:, order], starts, axis=1)) for z in (held_out.normal, held_out.z)
    )
    return Streams(names=tuple(names), normal=normal, values=values)


@dataclass(frozen=True, kw_only=True)
class RoleVectors:
    """log(1 + largest |z|) over the series of each role of each service; 0 without series."""

    windows: Windows
    services: tuple[str, ...]
    vectors: Matrix
    """[n + T, S, R] in time order: the held-out reference, then the test window."""

    @property
    def healthy(self) -> int:
        """Return the number of steps of the reference."""
        return len(self.windows.reference)


def read_role_vectors(episode: EpisodeView) -> RoleVectors | None:
    """Return an episode's role vectors; None if there are too few healthy samples to hold any out.

    If the view ends with its reference, all steps are healthy.
    """
    return episode.once("role vectors", lambda: _build_role_vectors(episode))


def _build_role_vectors(episode: EpisodeView) -> RoleVectors | None:
    windows = detection_windows(episode)
    if not windows.series or len(windows.reference) < MIN_SAMPLES:
        return None
    later = np.clip(measure_deviations(windows), -CLIP, CLIP)
    z = np.vstack([hold_out_deviations(windows.reference, windows.series), later])
    role_of = episode.catalogue.role_of
    services = sorted(set(windows.services))
    position = {name: number for number, name in enumerate(services)}
    code = np.array([position[s] * len(ROLES) + ROLES.index(role_of(metric)) for s, metric in windows.series])
    order = np.argsort(code, kind="stable")
    present, starts = np.unique(code[order], return_index=True)
    vectors = np.zeros((len(z), len(services) * len(ROLES)))
    vectors[:, present] = np.log1p(np.maximum.reduceat(np.abs(z)[:, order], starts, axis=1))
    vectors = vectors.reshape(len(z), len(services), len(ROLES))
    vectors.flags.writeable = False
    return RoleVectors(windows=windows, services=tuple(services), vectors=vectors)


def healthy_sequences(episodes: Sequence[EpisodeView]) -> list[Matrix]:
    """Return the role vectors [steps, R] of every service in every training episode."""
    role_vectors = [item for item in map(read_role_vectors, episodes) if item is not None]
    return [item.vectors[:, service] for item in role_vectors for service in range(len(item.services))]


Ints = npt.NDArray[np.int64]
_MIN_PROBABILITY = 1e-300
RECENT = 5
"""Number of steps whose rows are counted together, because rows are rarer than samples."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Grid of steps over a view; the last step may be shorter.

    Steps without any recorded row are skipped as if no time had passed, because the collector failed in them.
    """

    start_ns: int
    step_ns: int
    recorded: Ints
    """Positions of recorded steps on the whole grid."""
    healthy: int
    """Number of recorded steps within the reference."""
    view_end_ns: int

    @property
    def count(self) -> int:
        """Return the number of recorded steps."""
        return len(self.recorded)

    @property
    def times_ns(self) -> Ints:
        """Return the end [T] of each step after the reference."""
        ends = self.start_ns + self.step_ns * (self.recorded[self.healthy :] + 1)
        return np.minimum(ends, self.view_end_ns)

    def of(self, times_ns: Ints) -> Ints:
        """Return the step of each instant; -1 outside the view and in skipped steps."""
        inside = (times_ns >= self.start_ns) & (times_ns < self.view_end_ns)
        step = np.full(int(self.recorded[-1]) + 2 if self.count else 1, -1)
        step[self.recorded] = np.arange(self.count)
        return step[np.where(inside, np.minimum((times_ns - self.start_ns) // self.step_ns, len(step) - 1), -1)]

    def counts(self, times_ns: Ints, keys: Ints, kinds: int, weights: npt.NDArray | None = None) -> Ints:
        """Count the rows, or sum the weights, of each key in each step, as [count, kinds]; skip negative keys."""
        step = self.of(times_ns)
        used = (step >= 0) & (keys >= 0)
        cell = step[used] * kinds + keys[used]
        chosen = None if weights is None else weights[used]
        size = self.count * kinds
        return np.bincount(cell, weights=chosen, minlength=size).reshape(self.count, kinds).astype(np.int64)


def read_steps(episode: EpisodeView) -> Steps:
    """Return the grid of an episode's metrics."""
    start_ns, end_ns = episode.window
    step_ns = round(episode.context.resolution_s * SECOND_NS)
    recorded = np.flatnonzero(~episode.silent_steps(step_ns))
    return Steps(
        start_ns=start_ns,
        step_ns=step_ns,
        recorded=recorded,
        healthy=int(np.searchsorted(recorded, (episode.reference[1] - start_ns) // step_ns)),
        view_end_ns=end_ns,
    )


def sum_recent(counts: Ints, steps: int = RECENT) -> Ints:
    """Return sums over the last `steps` steps, as [count, kinds]; fewer steps at the beginning."""
    total = np.cumsum(counts, axis=0)
    total[steps:] -= total[:-steps].copy()
    return total


def span_of_recent(counts: Ints, steps: int = RECENT) -> Ints:
    """Return the distance between the first and last step with a row among the last `steps` steps.

    >>> span_of_recent(np.array([[1], [0], [0], [2], [0], [3]]), 4).ravel().tolist()
    [0, 0, 0, 3, 0, 2]
    """
    step = np.arange(len(counts))[:, None]
    last = np.maximum.accumulate(np.where(counts > 0, step, -1), axis=0)
    following = np.minimum.accumulate(np.where(counts > 0, step, len(counts))[::-1], axis=0)[::-1]
    first = following[np.maximum(step[:, 0] - steps + 1, 0)]
    return np.maximum(last - first, 0)


def count_silent_steps(counts: Ints) -> Ints:
    """Return the number of consecutive steps without a row, up to each step.

    >>> count_silent_steps(np.array([[1], [0], [0], [2]])).ravel().tolist()
    [0, 1, 2, 0]
    """
    number = np.arange(1, len(counts) + 1)[:, None]
    return number - np.maximum.accumulate(np.where(counts > 0, number, 0), axis=0)


def idle_share(counts: Ints) -> Matrix:
    """Return the share of steps without a row for each kind, strictly between 0 and 1."""
    return ((counts == 0).sum(axis=0) + 0.5) / (len(counts) + 1)


def excess_surprise(hits: Ints, trials: Ints, share: Matrix) -> Matrix:
    """Return -log10 of the binomial probability of at least `hits` hits in `trials` trials at the healthy share."""
    has_hits = hits > 0
    number = np.where(has_hits, hits, 1)
    tail = betainc(number, trials - number + 1.0, share)
    return np.where(has_hits, -np.log10(np.maximum(tail, _MIN_PROBABILITY)), 0.0)
