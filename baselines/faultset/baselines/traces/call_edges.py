"""Duration, failures and number of the calls between each pair of services, on the episode's grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.baselines.stats.scaling import Matrix, deviations, distinct, mean_and_sd, sustained
from faultset.baselines.traces.spans import read_spans
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

SUSTAINED_STEPS = 3
MIN_FILLED_SHARE = 0.5
MEASURES = ("seconds", "errors", "calls")


@dataclass(frozen=True, kw_only=True)
class CallEdges:
    """[T, E] series of the calls of each (caller, callee) pair."""

    pairs: tuple[tuple[str, str], ...]
    """(caller, callee), sorted; only pairs with calls in at least half of the healthy steps."""
    is_healthy: npt.NDArray[np.bool_]
    """[T] whether the step ends before the end of the reference and before the alarm."""
    is_recent: npt.NDArray[np.bool_]
    """[T] whether the step is in the test window, which begins two steps before the alarm."""
    seconds: Matrix
    """Mean duration of a call; the healthy mean in steps without a call."""
    errors: Matrix
    """Share of failed calls; the healthy mean in steps without a call."""
    calls: Matrix
    """Number of calls."""

    def series(self, measure: str) -> Matrix:
        """Return the series of one of `MEASURES`."""
        return {"seconds": self.seconds, "errors": self.errors, "calls": self.calls}[measure]

    def standardise(self, measure: str) -> Matrix:
        """Return the deviations [T, E] from the healthy mean in healthy standard deviations."""
        values = self.series(measure)
        mean, sd = mean_and_sd(values[self.is_healthy])
        return deviations(values, mean, sd, np.zeros(values.shape, dtype=bool))

    def measure_lasting_deviations(self, measure: str) -> Matrix:
        """Return the largest |deviation| [E] since the alarm that lasts for three steps."""
        recent = self.standardise(measure)[self.is_recent]
        return sustained(recent, min(SUSTAINED_STEPS, max(1, len(recent)))).max(axis=0, initial=0.0)


def read_call_edges(episode: EpisodeView, alarm_ns: int) -> CallEdges:
    """Read the calls between services from spans; empty without spans."""
    return episode.once(("call edges", alarm_ns), lambda: _build_call_edges(episode, alarm_ns))


def _build_call_edges(episode: EpisodeView, alarm_ns: int) -> CallEdges:
    spans = read_spans(episode)
    calls = spans.calls
    start_ns, end_ns = episode.window
    step_ns = round(episode.context.resolution_s * SECOND_NS)
    steps = -(-(end_ns - start_ns) // step_ns)
    began = spans.start_ns[calls.row]
    between = (calls.caller >= 0) & (calls.callee >= 0) & (calls.caller != calls.callee)
    rows = np.flatnonzero(between & (began >= start_ns) & (began < end_ns))
    edges, _, code = distinct(calls.caller[rows] * len(spans.names) + calls.callee[rows])
    cell = (began[rows] - start_ns) // step_ns * len(edges) + code
    shape, size = (steps, len(edges)), steps * len(edges)
    count = np.bincount(cell, minlength=size).reshape(shape).astype(float)
    total_s, failed = (
        np.asarray(np.bincount(cell, weights=weights[calls.row[rows]], minlength=size).reshape(shape), dtype=float)
        for weights in (spans.duration_ns / SECOND_NS, spans.error.astype(float))
    )
    ends_ns = start_ns + step_ns * np.arange(1, steps + 1)
    is_healthy = ends_ns <= min(episode.reference[1], alarm_ns)
    busy = (count[is_healthy] > 0).mean(axis=0) if is_healthy.any() else np.zeros(len(edges))
    chosen = np.flatnonzero(busy >= MIN_FILLED_SHARE)
    count, total_s, failed = count[:, chosen], total_s[:, chosen], failed[:, chosen]
    return CallEdges(
        pairs=tuple(
            (spans.names[edge // len(spans.names)], spans.names[edge % len(spans.names)]) for edge in edges[chosen]
        ),
        is_healthy=is_healthy,
        is_recent=ends_ns > alarm_ns - 2 * step_ns,
        seconds=_compute_means_per_call(total_s, count, is_healthy),
        errors=_compute_means_per_call(failed, count, is_healthy),
        calls=count,
    )


def _compute_means_per_call(total: Matrix, count: Matrix, is_healthy: npt.NDArray[np.bool_]) -> Matrix:
    """Return totals per call; steps without a call get the healthy mean."""
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    usual, _ = mean_and_sd(mean[is_healthy])
    return np.where(count > 0, mean, usual)
