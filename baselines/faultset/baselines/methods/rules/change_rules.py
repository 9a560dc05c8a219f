"""Rules that count alerts of a service or take its largest relative change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.stats.scaling import Matrix, varies

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

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


class _ByPeaks(TrainingFreeBaseline):
    """Base class of rules on the peaks of each series."""

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by the peaks of their series since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        return self.rank(episode, windows, *measure_peaks(windows.reference, windows.values))

    def rank(self, episode: EpisodeView, windows: Windows, z: Matrix, percent: Matrix) -> Ranking:
        raise NotImplementedError


@baseline(
    "relative-change",
    title="Largest relative change (CD-1min)",
    task="localization",
    paper=_PAPER,
    kind="rule",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T)",
    departures=(
        "Samples have the episode's own step, as in the audit's runs on RCAEval; on OpenRCA it uses one minute.",
        "Three reference samples suffice; the probe requires ten.",
    ),
)
class RelativeChange(_ByPeaks):
    """Rank services by their largest change in percent, among series that changed by 3 sigma and 5 %.

    References
    ----------
    Audit of pooled leaderboards of root cause analysis, arXiv 2606.29159, 2026.
    """

    def rank(self, episode: EpisodeView, windows: Windows, z: Matrix, percent: Matrix) -> Ranking:
        """Rank services by percent."""
        score = np.where((z >= SIGMAS) & (percent >= MIN_PERCENT), percent, 0.0)
        best: dict[str, float] = {}
        order = sorted(range(len(score)), key=lambda column: (-score[column], windows.series[column]))
        for column in order:
            best.setdefault(windows.series[column][0], float(score[column]))
        evidence = [
            Evidence(
                service=windows.series[column][0],
                subject=windows.series[column][1],
                score=float(score[column]),
                detail=f"percent of the healthy mean, {z[column]:.1f} sigma",
            )
            for column in order[:10]
            if score[column] > 0
        ]
        metrics = dict(zip(windows.series, score.tolist(), strict=True))
        return Ranking.of(best, episode.services, evidence, metrics)


@baseline(
    "alert-count",
    title="Alert count",
    task="localization",
    paper=_PAPER,
    kind="rule",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T)",
    departures=("Services with the same number of alerts are ordered by their largest deviation.",),
)
class AlertCount(_ByPeaks):
    """Rank services by the number of series that deviated by more than 3 sigma.

    References
    ----------
    Audit of pooled leaderboards of root cause analysis, arXiv 2606.29159, 2026.
    """

    def rank(self, episode: EpisodeView, windows: Windows, z: Matrix, percent: Matrix) -> Ranking:
        """Rank services by alerts."""
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
            for service in sorted(alerts, key=lambda service: (-scores[service], service))[:10]
        ]
        return Ranking.of(scores, episode.services, evidence)
