"""PDiagnose as RCAEval implements it: raw counts of exceedances, added up.

Kept to show what the differences to the method of `pdiagnose` amount to. It sees nothing that drops, counts error
lines of the healthy time too, and what is constant counts with every sample and every span.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.baselines.api.contract import Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.api.tables import read_frame
from faultset.baselines.features.windows import localization_windows, window_after
from faultset.baselines.stats.scaling import Matrix
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

ALPHA = 5
KEYWORDS = re.compile("error|fail")
Counts = dict[str, float]


def upper_limits(reference: Matrix) -> Matrix:
    """Mean plus three standard deviations (ddof 1) of each column, without any floor."""
    return np.nanmean(reference, axis=0) + 3 * np.nanstd(reference, axis=0, ddof=1)


def metric_counts(reference: Matrix, values: Matrix, services: Sequence[str]) -> Counts:
    """Samples at or above the limit of their series, per service; of a series that never moves that is every sample."""
    above = (values >= upper_limits(reference)).sum(axis=0)
    return _per_service(services, above)


def log_counts(services: Sequence[str], messages: Sequence[str]) -> Counts:
    """Lines with "error" or "fail", in lower case, per service."""
    return _per_service(services, [float(KEYWORDS.search(message) is not None) for message in messages])


def slow_count(durations: Matrix, healthy: npt.NDArray[np.bool_]) -> int:
    """Count spans of one operation at or above its limit, other than the healthy ones."""
    reference = durations[healthy]
    if len(reference) < 2:
        return 0
    return int((durations[~healthy] >= upper_limits(reference[:, None])[0]).sum())


def totals(sources: Sequence[Mapping[str, float]]) -> Counts:
    """Add up the counts of all sources; the factor is the published one and changes no order."""
    names = sorted(set().union(*sources))
    return {name: ALPHA * sum(source.get(name, 0.0) for source in sources) for name in names}


def _per_service(services: Sequence[str], amounts: Sequence[float] | npt.NDArray) -> Counts:
    counts: Counts = {}
    for service, amount in zip(services, amounts, strict=True):
        counts[service] = counts.get(service, 0.0) + float(amount)
    return counts


@baseline(
    "pdiagnose-rcaeval",
    title="PDiagnose as in RCAEval",
    task="localization",
    paper="Pham et al., RCAEval 1.8.1, after Hou et al., ISPA 2021",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics", "logs", "spans"),
    speed="fast",
    complexity="O(S·T + L + N)",
    departures=("Not the published method: upper limits only, no queue, raw counts.",),
)
class PDiagnoseRCAEval(Untrained):
    """Rank services by raw counts of samples, lines and spans above their limits.

    References
    ----------
    Pham et al., RCAEval: a benchmark for root cause analysis of microservice systems, WWW 2025.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by summed counts since the alarm."""
        windows = localization_windows(episode, alarm_ns, before=1)
        time_window = window_after(episode, alarm_ns, windows.step_ns / SECOND_NS)
        sources: list[Counts] = []
        if not windows.empty and len(windows.reference) > 1:
            sources.append(metric_counts(windows.reference, windows.values, windows.services))
        logs = read_frame(episode, "logs", ("time", "service", "message"))
        logs = logs[logs["service"].notna() & (logs["time"] < time_window.end_ns)]
        sources.append(log_counts(logs["service"].astype(str).tolist(), logs["message"].tolist()))
        spans = read_frame(episode, "spans", ("time", "service", "operation", "duration_ns"))
        since = spans["time"] >= time_window.start_ns
        healthy = spans["time"] < time_window.healthy_end_ns
        spans = spans[spans["service"].notna() & (since | healthy)]
        counts: Counts = {}
        for (service, _), rows in spans.groupby(["service", "operation"], observed=True):
            is_healthy = (rows["time"] < time_window.healthy_end_ns).to_numpy()
            slow = slow_count(rows["duration_ns"].to_numpy(dtype=float), is_healthy)
            counts[str(service)] = counts.get(str(service), 0.0) + slow
        sources.append(counts)
        return Ranking.of(totals(sources), episode.services)
