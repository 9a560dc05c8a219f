"""Calls between services on the episode's grid: latency of each service as seen by its callers, and series per pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.features.spans import read_spans
from faultset.baselines.features.windows import localization_windows
from faultset.baselines.stats.scaling import Matrix, deviations, distinct, mean_and_sd, sustained
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView, read_table

_ROUNDING_ERROR = 1e-12
CLIP = 100.0
SUSTAINED_STEPS = 3
SIGMAS = 3.0
FROM_SPANS = (
    "Latency comes from callers' spans, or from metrics of the role latency if there are no spans; steps without calls "
    "have the healthy mean.",
)
"""Departure from the paper shared by all methods that use these latencies."""
MIN_FILLED_SHARE = 0.5
_COLUMNS = ("time", "service", "peer_service", "kind", "duration_ns", "status")


@dataclass(frozen=True, kw_only=True)
class CallSeries:
    """Calls of an episode as series, with a column for each candidate that is called."""

    services: tuple[str, ...]
    starts_ns: npt.NDArray[np.int64]
    """[T] start of each step."""
    step_ns: int
    seconds: Matrix
    """[T, S] mean duration of the calls that began in the step; NaN without calls."""
    calls: Matrix
    """[T, S] number of calls that began in the step."""
    errors: Matrix
    """[T, S] number of failed calls."""
    pairs: tuple[tuple[str, str], ...]
    """(caller, callee) pairs in the reference, sorted."""


@dataclass(frozen=True, kw_only=True)
class ServiceLatency:
    """Latency as z-scores of the reference, for services with a measured latency."""

    services: tuple[str, ...]
    reference: Matrix
    """[n, S]"""
    values: Matrix
    """[T, S] beginning two steps before the alarm."""

    @property
    def all(self) -> Matrix:
        """Return the reference and the test window [n + T, S]."""
        return np.vstack([self.reference, self.values])

    def column(self, service: str) -> Matrix | None:
        """Return the samples [n + T] of one service; None if it has no latency or a constant one."""
        if service not in self.services:
            return None
        samples = self.all[:, self.services.index(service)]
        return samples if np.ptp(samples) > 0 else None


def read_call_series(episode: EpisodeView) -> CallSeries:
    """Read calls from spans as series.

    A call counts towards the called service. Client spans that name that service are used, because they include the
    network and calls without a response. If no client span in the reference names the service, its own spans are used.
    """
    return episode.once("call series", lambda: _build_call_series(episode))


def _build_call_series(episode: EpisodeView) -> CallSeries:
    services = tuple(sorted(episode.services))
    start_ns, end_ns = episode.window
    step_ns = round(episode.context.resolution_s * SECOND_NS)
    steps = -(-(end_ns - start_ns) // step_ns)
    table = read_table(episode, "spans", _COLUMNS)
    time = table["time"].cast("int64").to_numpy()
    kind = name_codes(table["kind"], ("client", "server"))
    peer = name_codes(table["peer_service"], services)
    owner = name_codes(table["service"], services)
    inside = (time >= start_ns) & (time < end_ns)
    is_client_call = inside & (kind == 0) & (peer >= 0)
    is_server_call = inside & (kind == 1) & (owner >= 0)
    healthy = time < episode.reference[1]
    has_client_spans = np.bincount(peer[is_client_call & healthy], minlength=len(services)) > 0
    target = np.where(is_client_call, peer, np.where(is_server_call, owner, -1))
    rows = np.flatnonzero(is_client_call | (is_server_call & ~has_client_spans[np.maximum(owner, 0)]))
    cell = (time[rows] - start_ns) // step_ns * len(services) + target[rows]
    size = steps * len(services)
    count = np.bincount(cell, minlength=size)
    total = np.bincount(cell, weights=table["duration_ns"].to_numpy()[rows], minlength=size)
    failed = pc.equal(table["status"].cast("string"), "error").to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]
    errors = np.bincount(cell[failed[rows].astype(bool)], minlength=size)
    seconds = np.where(count > 0, total / np.maximum(count, 1) / SECOND_NS, np.nan)
    called = count.reshape(steps, -1).sum(axis=0) > 0
    edges = np.unique(np.stack([owner, peer])[:, is_client_call & healthy & (owner >= 0) & (owner != peer)], axis=1)
    return CallSeries(
        services=tuple(name for name, keep in zip(services, called, strict=True) if keep),
        starts_ns=start_ns + step_ns * np.arange(steps),
        step_ns=step_ns,
        seconds=seconds.reshape(steps, -1)[:, called],
        calls=count.reshape(steps, -1)[:, called].astype(float),
        errors=errors.reshape(steps, -1)[:, called].astype(float),
        pairs=tuple((services[caller], services[callee]) for caller, callee in edges.T.tolist()),
    )


def read_call_graph(episode: EpisodeView, calls: CallSeries | None = None) -> tuple[tuple[str, str], ...]:
    """Return the declared (caller, callee) pairs; if none are declared, the pairs in healthy spans."""
    candidates = set(episode.services)
    pairs = episode.calls or (calls or read_call_series(episode)).pairs
    return tuple(sorted({pair for pair in pairs if candidates.issuperset(pair) and pair[0] != pair[1]}))


def measure_latency(episode: EpisodeView, alarm_ns: int, calls: CallSeries | None = None) -> ServiceLatency:
    """Measure latencies from spans, or from metrics of the role latency averaged over each service.

    Steps without a call get the healthy mean. Services that are called in fewer than half of the healthy steps are left
    out.
    """
    calls = calls or read_call_series(episode)
    if calls.services:
        ends = calls.starts_ns + calls.step_ns
        healthy = ends <= min(episode.reference[1], alarm_ns)
        in_test_window = ends > alarm_ns - 2 * calls.step_ns
        is_frequent = np.isfinite(calls.seconds[healthy]).mean(axis=0) >= MIN_FILLED_SHARE if healthy.any() else [False]
        chosen = np.flatnonzero(is_frequent)
        services = [calls.services[column] for column in chosen]
        reference, values = calls.seconds[healthy][:, chosen], calls.seconds[in_test_window][:, chosen]
    else:
        windows = localization_windows(episode, alarm_ns)
        role = episode.catalogue.role_of
        chosen = [column for column, (_, metric) in enumerate(windows.series) if role(metric) == "latency"]
        services = [windows.series[column][0] for column in chosen]
        reference, values = windows.reference[:, chosen], windows.values[:, chosen]
    if not services or not len(reference) or not len(values):
        empty = np.empty((0, 0))
        return ServiceLatency(services=(), reference=empty, values=empty)
    mean, sd = mean_and_sd(reference)
    names = tuple(sorted(set(services)))
    mixing = (np.array(services)[:, None] == np.array(names)).astype(float)
    mixing /= mixing.sum(axis=0)
    return ServiceLatency(
        services=names,
        reference=_standardise(reference, mean, sd) @ mixing,
        values=_standardise(values, mean, sd) @ mixing,
    )


def correlations(series: Matrix, target: Matrix) -> Matrix:
    """Return Pearson's correlation of each column with the target; 0 if either is constant."""
    a, size_a = _centre(series)
    b, size_b = _centre(target[:, None])
    product = size_a * size_b
    return np.divide(b[:, 0] @ a, product, out=np.zeros(a.shape[1]), where=product > 0)


def _centre(columns: Matrix) -> tuple[Matrix, Matrix]:
    """Return centred columns and their norms; 0 for a column that varies only by rounding errors."""
    centred = columns - columns.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    return centred, np.where(size > _ROUNDING_ERROR * np.sqrt((columns**2).sum(axis=0)), size, 0.0)


def correlate_with_front(latency: ServiceLatency, front: str) -> dict[str, float]:
    """Return |correlation| of each latency with the front end's; empty if the front end's is missing or constant."""
    target = latency.column(front)
    if target is None:
        return {}
    similarity = np.abs(correlations(latency.all, target))
    return dict(zip(latency.services, similarity.tolist(), strict=True))


def find_anomalous_services(latency: ServiceLatency, *, sigmas: float = SIGMAS) -> dict[str, float]:
    """Return the |z| that each service's latency reaches for three steps in a row, if above `sigmas`."""
    if not latency.services:
        return {}
    lasting = sustained(latency.values, SUSTAINED_STEPS).max(axis=0)
    return {name: float(z) for name, z in zip(latency.services, lasting, strict=True) if z > sigmas}


def _standardise(values: Matrix, mean: Matrix, sd: Matrix) -> Matrix:
    return np.clip(deviations(values, mean, sd), -CLIP, CLIP)


def name_codes(column: pa.ChunkedArray, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the index of each entry among the names; -1 for nulls and other names."""
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
        parts = [
            np.append(_look_up_codes(chunk.dictionary, names), -1)[
                chunk.indices.fill_null(len(chunk.dictionary)).to_numpy()
            ]
            for chunk in column.chunks
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return _look_up_codes(column, names)


def _look_up_codes(values: pa.Array | pa.ChunkedArray, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    index = pc.index_in(values.cast("string"), value_set=pa.array(names, pa.string()))  # type: ignore[attr-defined]
    return index.fill_null(-1).to_numpy().astype(np.int64)


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

    def standardise(self, measure: str) -> Matrix:
        """Return the deviations [T, E] of one of `MEASURES` from its healthy mean in healthy standard deviations."""
        values = getattr(self, measure)
        mean, sd = mean_and_sd(values[self.is_healthy])
        return deviations(values, mean, sd)

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
    is_between_services = (calls.caller >= 0) & (calls.callee >= 0) & (calls.caller != calls.callee)
    rows = np.flatnonzero(is_between_services & (began >= start_ns) & (began < end_ns))
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
    busy_share = (count[is_healthy] > 0).mean(axis=0) if is_healthy.any() else np.zeros(len(edges))
    chosen = np.flatnonzero(busy_share >= MIN_FILLED_SHARE)
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
