"""RMLAD: rank metrics by their mutual information with the anomaly score of the logs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import rankdata

from faultset.baselines.api.contract import Ranking, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.metric_alarms import rank_by_series
from faultset.baselines.features.windows import localization_windows
from faultset.baselines.logs.scores import LogScores, read_log_lines, score_logs, unexpected_line_evidence
from faultset.baselines.stats.dependence import knn_information
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Scope = Literal["system", "own"]
MIN_CANDIDATES = 5
MIN_LINES = 5
LONG_BIN = 4


def candidate_series(z: Matrix, *, sigmas: float = 3.0, min_candidates: int = MIN_CANDIDATES) -> np.ndarray:
    """Return the columns that deviate at some time; if there are too few, all columns that vary."""
    deviates = np.abs(z).max(axis=0, initial=0.0) > sigmas
    return deviates if deviates.sum() >= min_candidates else z.std(axis=0) > 0


def measure_association(
    series: Matrix,
    score: Matrix,
    *,
    replicates: int,
    noise: float,
    neighbours: int,
    rng: np.random.Generator,
    lag: int = 0,
) -> Matrix:
    """Return the mean mutual information of noisy copies of each series and of the anomaly score.

    Parameters
    ----------
    series
        [n, d] columns to compare.
    score
        [n] one score for all series, or [n, d] one per series.
    noise
        Standard deviation of the noise, as a multiple of the series' standard deviation.
    lag
        Largest shift in samples, in both directions; the shift with the most information counts.
    """
    samples, count = series.shape
    target = np.broadcast_to(score[:, None] if score.ndim == 1 else score, series.shape)
    shape = (replicates, samples, count)
    noisy = series + rng.standard_normal(shape) * (noise * series.std(axis=0))
    noisy_target = target + rng.standard_normal(shape) * (noise * target.std(axis=0))
    best = np.zeros(count)
    for shift in range(-lag, lag + 1):
        series_rows = slice(max(0, shift), samples + min(0, shift))
        target_rows = slice(max(0, -shift), samples + min(0, -shift))
        pairs = [
            block[:, window].transpose(0, 2, 1).reshape(replicates * count, -1)
            for block, window in ((noisy, series_rows), (noisy_target, target_rows))
        ]
        information = knn_information(pairs[0], pairs[1], neighbours=neighbours)
        best = np.maximum(best, information.reshape(replicates, count).mean(axis=0))
    return best


@baseline(
    "rmlad",
    title="RMLAD",
    task="localization",
    paper="Wang, Zhao, Chen, Li, Zhang, Sui, ICWS 2020",
    kind="named",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics", "logs"),
    requires=("metrics", "logs"),
    stochastic=True,
    reconstruction=True,
    open_settings={
        "scope": ("system", "own"),
        "half_window": (20, 10, 40),
        "neighbours": (3, 2, 5),
        "noise": (0.1, 0.05, 0.2),
        "lag": (0, 2),
    },
    complexity="O(L·log L + S·T·A), A augmented copies",
    departures=(
        "Counts of successive templates replace DeepLog's network, because there are few lines.",
        "Choices that the public text leaves open: replicates are averaged, the noise of both series is a tenth of "
        "their standard deviation, and candidates deviate by 3 sigma.",
        "Five replicates instead of 20.",
        "Gaps of up to two steps repeat the last value; a series that stopped counts as a deviation of ten sigma.",
    ),
)
class RMLAD(TrainingFreeBaseline):
    """Rank services by the mutual information of their metrics and the log anomaly score.

    The method abstains if the score is constant.

    Parameters
    ----------
    scope
        `system`: compare every series with the score of all logs; `own`: with the score of its service's logs.
    replicates, noise, neighbours, lag
        See `measure_association`.
    half_window
        Number of bins on each side of the alarm.

    References
    ----------
    Wang et al., Root-cause metric location for microservice systems via log anomaly detection, ICWS 2020.
    """

    def __init__(
        self,
        *,
        scope: Scope = "system",
        replicates: int = 5,
        noise: float = 0.1,
        neighbours: int = 3,
        lag: int = 0,
        half_window: int = 20,
        seed: int = 0,
    ) -> None:
        self.scope = scope
        self.replicates = replicates
        self.noise = noise
        self.neighbours = neighbours
        self.lag = lag
        self.half_window = half_window
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by data around the alarm."""
        start_ns, reference_end_ns = episode.reference
        step_s = episode.context.resolution_s
        last_ns = alarm_ns + round((self.half_window + 1) * LONG_BIN * step_s * SECOND_NS)
        lines = read_log_lines(episode, start_ns, last_ns)
        bins = max(1, round((reference_end_ns - start_ns) / (step_s * SECOND_NS)))
        if (lines.times_ns < reference_end_ns).sum() < MIN_LINES * bins:
            step_s *= LONG_BIN
        windows = localization_windows(episode, alarm_ns, before=self.half_window, step_s=step_s)
        rows = slice(0, 2 * self.half_window)
        starts = windows.times_ns[rows] - windows.step_ns
        if windows.empty or len(starts) <= self.neighbours:
            return Ranking.abstain()
        bin_number = (starts - starts[0]) // windows.step_ns
        logs = score_logs(
            lines,
            healthy_end_ns=min(alarm_ns, reference_end_ns),
            start_ns=int(starts[0]),
            step_ns=windows.step_ns,
            bins=int(bin_number[-1]) + 1,
        )
        mean, sd = mean_and_sd(windows.reference)
        z = deviations(windows.values, mean, with_metric_floor(sd, windows.series), windows.absent)[rows]
        target = self._select_target(logs, windows.services)[bin_number]
        columns = np.flatnonzero(candidate_series(z) & (target.std(axis=0) > 0))
        if len(columns) == 0:
            return Ranking.abstain()
        information = measure_association(
            z[:, columns],
            target[:, columns],
            replicates=self.replicates,
            noise=self.noise,
            neighbours=self.neighbours,
            rng=np.random.default_rng(self.seed),
            lag=self.lag,
        )
        # Break ties by rank correlation.
        information += 1e-9 * _rank_correlation(z[:, columns], target[:, columns])
        ranking = rank_by_series(
            information,
            tuple(windows.series[column] for column in columns),
            episode.services,
            detail="nats shared with the log anomaly score",
        )
        if ranking.abstains:
            return ranking
        reported = [item for item in unexpected_line_evidence(logs) if item.service in ranking.scores]
        return replace(ranking, evidence=(*ranking.evidence, *reported))

    def _select_target(self, logs: LogScores, services: list[str]) -> Matrix:
        """Return the log anomaly score [bins, series] that each series is compared with."""
        if self.scope == "system":
            return np.repeat(logs.system[:, None], len(services), axis=1)
        silent = np.zeros(len(logs.system))
        return np.stack([logs.by_service.get(service, silent) for service in services], axis=1)


def _rank_correlation(series: Matrix, target: Matrix) -> Matrix:
    a, b = rankdata(series, axis=0), rankdata(target, axis=0)
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    scale = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    return np.abs((a * b).sum(axis=0)) / np.where(scale > 0, scale, 1.0)
