"""SimpleRCA-like localizer: rules on metrics, traces and logs, and a count of alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from faultset.baselines.api.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.api.tables import read_table
from faultset.baselines.features.service_latency import name_codes
from faultset.baselines.features.windows import TimeWindow, Windows, cut_window_after, localization_windows
from faultset.baselines.logs.templates import error_line_excess, select_error_lines
from faultset.baselines.stats.scaling import deviations, mean_and_sd, sustained, with_metric_floor
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.metrics.roles import Catalogue
    from faultset.datasets.views import EpisodeView

SIGMAS = 3.0
SUSTAINED_STEPS = 3
SLOWER = 3.0
MIN_SPANS = 10
MIN_SHARE = 0.1
MIN_CHANGE: Mapping[str, float] = {"cpu": 0.05, "latency": 0.01, "errors": 0.1, "traffic": 0.5}
"""Role -> minimum distance from the usual range, in cores, seconds, errors and requests per second."""
_PAPER = "Fang et al., arXiv 2510.04711 (SimpleRCA)"


def find_metric_alarms(windows: Windows, catalogue: Catalogue) -> dict[tuple[str, str], float]:
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
    mean, sd = mean_and_sd(windows.reference)
    z = deviations(windows.values, mean, with_metric_floor(sd, windows.series), windows.absent)
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
    words, operation = _encode_operations(table["operation"])
    healthy = (time < time_window.healthy_end_ns) & (service >= 0)
    recent = (time >= time_window.start_ns) & (time < time_window.end_ns) & (service >= 0)
    group = service * max(1, len(words)) + operation
    duration = table["duration_ns"].to_numpy()
    before, after = _percentiles(group[healthy], duration[healthy]), _percentiles(group[recent], duration[recent])
    return {
        (names[code // len(words)], words[code % len(words)]): after[code] / before[code]
        for code in sorted(after.keys() & before.keys())
        if after[code] > SLOWER * before[code] > 0
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
    enough = count >= MIN_SPANS
    position = first + np.ceil(0.95 * count).astype(np.int64) - 1
    return dict(zip(codes[enough].tolist(), duration[order][position[enough]].astype(float).tolist(), strict=True))


@baseline(
    "simple-rca",
    title="SimpleRCA-like",
    task="localization",
    paper=_PAPER,
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics", "spans", "logs"),
    speed="instant",
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
        """Rank services by number of alarms."""
        windows = localization_windows(episode, alarm_ns)
        time_window = cut_window_after(episode, alarm_ns, windows.step_ns / SECOND_NS, before=2)
        metrics = find_metric_alarms(windows, episode.catalogue)
        role = episode.catalogue.role_of
        roles: dict[str, set[str]] = {}
        for service, metric in metrics:
            roles.setdefault(service, set()).add(role(metric))
        slow = slow_operations(episode, time_window)
        operations: dict[str, float] = {}
        for service, _ in slow:
            operations[service] = operations.get(service, 0.0) + 1
        lines = error_line_excess(select_error_lines(episode), time_window)
        scores: dict[str, float] = {}
        for source in ({service: float(len(names)) for service, names in roles.items()}, operations, lines):
            largest = max(source.values(), default=0.0)
            for service, count in source.items():
                scores[service] = scores.get(service, 0.0) + (count / largest if largest > 0 else 0.0)
        # Break ties by the larger deviation.
        furthest: dict[str, float] = {}
        for (service, _), z in metrics.items():
            furthest[service] = max(furthest.get(service, 0.0), z)
        for service, z in furthest.items():
            scores[service] += 1e-6 * z / (1 + z)
        evidence = [
            Evidence(service=service, subject=metric, score=z, detail="sigmas for three steps")
            for (service, metric), z in sorted(metrics.items(), key=lambda item: (-item[1], item[0]))[:5]
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
