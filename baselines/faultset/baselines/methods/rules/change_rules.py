"""Rules that count alarms of a service or take its largest relative change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline, best_by_service, largest_first
from faultset.baselines.features.calls import name_codes
from faultset.baselines.features.log_lines import error_line_excess, select_error_lines
from faultset.baselines.features.metric_alarms import series_evidence
from faultset.baselines.features.windows import (
    TimeWindow,
    Windows,
    cut_window_after,
    localization_windows,
    measure_deviations,
)
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import Matrix, mean_and_sd, sustained, varies
from faultset.core.times import SECOND_NS
from faultset.datasets.metrics.roles import Catalogue
from faultset.datasets.views import EpisodeView, read_table

SIGMAS = 3.0
MIN_PERCENT = 5.0
MIN_SAMPLES = 3
_PAPER = "Probe of the audit of pooled leaderboards, arXiv 2606.29159"


def measure_peaks(reference: Matrix, values: Matrix) -> tuple[Matrix, Matrix]:
    """Return the largest |z| and the largest |change| in percent of each series; 0 for constant references.

    Series with fewer than three reference samples get 0 too. Standard deviations use ddof 1.

    >>> z, percent = measure_peaks(np.array([[1.0], [2.0], [3.0]]), np.array([[4.0], [-3.0]]))
    >>> z.tolist(), percent.round(3).tolist()
    ([5.0], [250.0])
    """
    count = np.isfinite(reference).sum(axis=0)
    usable = varies(reference) & (count >= MIN_SAMPLES)
    filled = np.where(np.isfinite(reference), reference, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    squares = np.where(np.isfinite(reference), (reference - mean) ** 2, 0.0).sum(axis=0)
    sd = np.sqrt(squares / np.maximum(count - 1, 1))
    deviation = np.abs(np.where(np.isfinite(values), values - mean, 0.0)).max(axis=0, initial=0.0)
    z = np.divide(deviation, sd, out=np.zeros(len(sd)), where=usable & (sd > 0))
    return z, np.divide(100 * deviation, np.abs(mean), out=np.zeros(len(sd)), where=usable & (mean != 0))


class _PeakRule(TrainingFreeBaseline):
    """Base class of rules on the peaks of each series."""

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        return self.rank(episode, windows, *measure_peaks(windows.reference, windows.values))

    def rank(self, episode: EpisodeView, windows: Windows, z: Matrix, percent: Matrix) -> Ranking:
        raise NotImplementedError


@localizer(
    "relative-change",
    title="Largest relative change (CD-1min)",
    paper=_PAPER,
    kind="rule",
    complexity="O(S·T)",
    departures=(
        "Samples have the episode's own step, as in the audit's runs on RCAEval; on OpenRCA it uses one minute.",
        "Three reference samples suffice; the probe requires ten.",
    ),
)
class RelativeChange(_PeakRule):
    """Rank services by their largest change in percent, among series that changed by 3 sigma and 5 %.

    References
    ----------
    Audit of pooled leaderboards of root cause analysis, arXiv 2606.29159, 2026.
    """

    def rank(self, episode: EpisodeView, windows: Windows, z: Matrix, percent: Matrix) -> Ranking:
        score = np.where((z >= SIGMAS) & (percent >= MIN_PERCENT), percent, 0.0)
        metrics = dict(zip(windows.series, score.tolist(), strict=True))
        evidence = series_evidence(
            windows.series,
            score,
            [windows.series.index(key) for key in largest_first(metrics)[:10] if metrics[key] > 0],
            lambda column: f"percent of the healthy mean, {z[column]:.1f} sigma",
        )
        return Ranking.of(best_by_service(metrics), episode.services, evidence, metrics)


@localizer(
    "alert-count",
    title="Alert count",
    paper=_PAPER,
    kind="rule",
    complexity="O(S·T)",
    departures=("Services with the same number of alerts are ordered by their largest deviation.",),
)
class AlertCount(_PeakRule):
    """Rank services by the number of series that deviated by more than 3 sigma.

    References
    ----------
    Audit of pooled leaderboards of root cause analysis, arXiv 2606.29159, 2026.
    """

    def rank(self, episode: EpisodeView, windows: Windows, z: Matrix, percent: Matrix) -> Ranking:
        alerts: dict[str, float] = {}
        furthest: dict[str, float] = {}
        for (service, _), deviation in zip(windows.series, z.tolist(), strict=True):
            if deviation > SIGMAS:
                alerts[service] = alerts.get(service, 0.0) + 1
                furthest[service] = max(furthest.get(service, 0.0), deviation)
        scores = {
            service: count + 0.5 * furthest[service] / (1 + furthest[service]) for service, count in alerts.items()
        }
        evidence = [
            Evidence(service=service, subject="metrics", score=alerts[service], detail="series beyond 3 sigma")
            for service in largest_first(scores)[:10]
        ]
        return Ranking.of(scores, episode.services, evidence)


SUSTAINED_STEPS = 3
SLOWER = 3.0
MIN_SPANS = 10
MIN_SHARE = 0.1
MIN_CHANGE: Mapping[str, float] = {"cpu": 0.05, "latency": 0.01, "errors": 0.1, "traffic": 0.5}
"""Role -> minimum distance from the usual range, in cores, seconds, errors and requests per second."""
_SIMPLE_RCA = "Fang et al., arXiv 2510.04711 (SimpleRCA)"


def find_lasting_alarms(windows: Windows, catalogue: Catalogue) -> dict[tuple[str, str], float]:
    """Return series that deviate by 3 sigma for three steps and leave their usual range.

    The usual range is from the 5 % to the 95 % quantile of the reference, widened by a tenth of the mean or by
    `MIN_CHANGE`, whichever is larger.

    Returns
    -------
    dict
        (service, metric) -> largest lasting |z|.
    """
    if windows.empty:
        return {}
    mean, _ = mean_and_sd(windows.reference)
    z = measure_deviations(windows)
    low, high = np.quantile(np.where(np.isfinite(windows.reference), windows.reference, mean), (0.05, 0.95), axis=0)
    min_change = np.array([MIN_CHANGE.get(catalogue.role_of(metric), 0.0) for _, metric in windows.series])
    margin = np.maximum(min_change, MIN_SHARE * np.abs(mean))
    values = np.where(np.isfinite(windows.values), windows.values, mean)
    outside = (values > high + margin) | (values < low - margin) | windows.absent
    lasting = sustained(np.where(outside, z, 0.0), min(SUSTAINED_STEPS, len(z))).max(axis=0)
    return {windows.series[column]: float(lasting[column]) for column in np.flatnonzero(lasting > SIGMAS)}


def slow_operations(episode: EpisodeView, time_window: TimeWindow) -> dict[tuple[str, str], float]:
    """Return operations whose 95th percentile of span time is more than three times the healthy percentile.

    Returns
    -------
    dict
        (service, operation) -> ratio. Operations with fewer than ten spans before or after are left out.
    """
    table = read_table(episode, "spans", ("time", "service", "operation", "duration_ns"))
    names = tuple(sorted(episode.services))
    time = table["time"].cast("int64").to_numpy()
    service = name_codes(table["service"], names)
    operations, operation = _encode_operations(table["operation"])
    is_healthy = (time < time_window.healthy_end_ns) & (service >= 0)
    is_recent = (time >= time_window.start_ns) & (time < time_window.end_ns) & (service >= 0)
    group = service * max(1, len(operations)) + operation
    duration = table["duration_ns"].to_numpy()
    healthy, recent = (
        _percentiles(group[is_healthy], duration[is_healthy]),
        _percentiles(group[is_recent], duration[is_recent]),
    )
    return {
        (names[code // len(operations)], operations[code % len(operations)]): recent[code] / healthy[code]
        for code in sorted(recent.keys() & healthy.keys())
        if recent[code] > SLOWER * healthy[code] > 0
    }


def _encode_operations(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    return array.dictionary.cast("string").to_pylist(), array.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _percentiles(group: np.ndarray, duration: np.ndarray) -> dict[int, float]:
    order = np.lexsort([duration, group])
    codes, first, count = np.unique(group[order], return_index=True, return_counts=True)
    is_frequent = count >= MIN_SPANS
    position = first + np.ceil(0.95 * count).astype(np.int64) - 1
    return dict(
        zip(codes[is_frequent].tolist(), duration[order][position[is_frequent]].astype(float).tolist(), strict=True)
    )


@localizer(
    "simple-rca",
    title="SimpleRCA-like",
    paper=_SIMPLE_RCA,
    tables=("metrics", "spans", "logs"),
    complexity="O(S·T + N·log N + L), N spans, L log lines",
    departures=(
        "Follows the description, not the published code, which counts increases only and compares span times with a "
        "constant.",
        "A metric alarm must last for three steps and be large in its unit; a service has at most one alarm per role.",
        "Each source contributes a service's count divided by the largest count; sources have equal weights.",
        "Only error lines in excess of the rate in the reference are counted.",
    ),
)
class SimpleRCA(TrainingFreeBaseline):
    """Rank services by metrics beyond 3 sigma, operations that became three times slower, and error lines.

    References
    ----------
    Fang et al., Rethinking the evaluation of microservice RCA with a fault propagation-aware benchmark, arXiv
    2510.04711, 2025.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        time_window = cut_window_after(episode, alarm_ns, windows.step_ns / SECOND_NS, before=2)
        metrics = find_lasting_alarms(windows, episode.catalogue)
        role = episode.catalogue.role_of
        roles: dict[str, set[str]] = {}
        for service, metric in metrics:
            roles.setdefault(service, set()).add(role(metric))
        slow = slow_operations(episode, time_window)
        operations = Counter(service for service, _ in slow)
        lines = error_line_excess(select_error_lines(episode), time_window)
        scores: dict[str, float] = {}
        for source in ({service: float(len(names)) for service, names in roles.items()}, operations, lines):
            largest = max(source.values(), default=0.0)
            for service, count in source.items():
                scores[service] = scores.get(service, 0.0) + (count / largest if largest > 0 else 0.0)
        # Break ties by the larger deviation.
        for service, z in best_by_service(metrics).items():
            scores[service] += 1e-6 * z / (1 + z)
        evidence = [
            Evidence(service=service, subject=metric, score=metrics[service, metric], detail="sigmas for three steps")
            for service, metric in largest_first(metrics)[:5]
        ]
        evidence += [
            Evidence(service=service, subject=operation, score=ratio, detail="times the healthy 95th percentile")
            for (service, operation), ratio in sorted(slow.items(), key=lambda item: (-item[1], item[0]))[:5]
        ]
        evidence += [
            Evidence(service=service, subject="log lines", score=count, detail="error lines beyond the usual rate")
            for service, count in sorted(lines.items())
            if count > 0
        ]
        return Ranking.of(scores, episode.services, evidence, metrics)
