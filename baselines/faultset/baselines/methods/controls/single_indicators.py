"""Controls that look at one kind of sign: a series that stops, a service that writes error lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.series_scores import rank_by_series
from faultset.baselines.features.windows import localization_windows, window_after
from faultset.baselines.logs.keywords import error_line_excess, error_lines, excess_by

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@baseline(
    "series-stopped",
    title="Series stopped",
    task="localization",
    paper="None; a control",
    kind="control",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T)",
)
class SeriesStopped(Untrained):
    """Control: blame the service whose series have no samples any more.

    The score is the mean over its series of the share of steps since the alarm in which they are absent.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by how much of their telemetry is gone."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        gone = windows.absent.mean(axis=0)
        reported = rank_by_series(gone, windows.series, episode.services, detail="share of steps without a sample")
        owner = np.array(windows.services)
        share = {service: float(gone[owner == service].mean()) for service in set(windows.services)}
        return Ranking.of(share, episode.services, [item for item in reported.evidence if item.score > 0])


@baseline(
    "loudest-log",
    title="Loudest log",
    task="localization",
    paper="None; a control",
    kind="control",
    developed_on=OWN_AND_PUBLISHED,
    tables=("logs",),
    speed="instant",
    complexity="O(L)",
)
class LoudestLog(Untrained):
    """Control: blame the service with most error lines since the alarm.

    An error line is a line at level error or fatal, or with a word like "failed"; the usual rate is subtracted.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by error lines."""
        time_window = window_after(episode, alarm_ns, episode.context.resolution_s)
        lines = error_lines(episode)
        counts = error_line_excess(lines, time_window)
        by_pod = excess_by(lines, time_window, ("service", "pod"))
        pods = {(service, pod): count for (service, pod), count in by_pod.items()}
        evidence = [
            Evidence(service=name, subject="log lines", score=count, detail="error lines beyond the usual")
            for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]
        return Ranking.of(counts, episode.services, evidence, pods=pods)
