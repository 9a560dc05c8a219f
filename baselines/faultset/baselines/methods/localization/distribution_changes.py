"""Changes in the distribution of metrics: BARO's detector and ε-Diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.api.randomness import episode_rng
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN, OWN_AND_PUBLISHED
from faultset.baselines.features.metric_alarms import standardise_windows
from faultset.baselines.features.windows import Windows, detection_windows, localization_windows
from faultset.baselines.stats.change_points import HAZARD, RunLengths, run_lengths
from faultset.baselines.stats.dependence import permutation_p_values, ranked_samples
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

ROLES = frozenset({"latency", "errors"})
MAX_COLUMNS = 48
CLIP = 2.0
SURE = 0.5


@baseline(
    "baro-change-point",
    title="BARO (change point)",
    task="detection",
    paper="Pham, Ha, Zhang, BARO, FSE 2024",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(T·R·d²), R ≤ T possible runs, d ≤ 48 columns",
    departures=(
        "Columns are scaled by their range in the reference; the published code uses the whole series, which includes "
        "later data.",
        "The score is the probability that a regime began after the reference; the published code uses any jump of the "
        "most likely run length, even within the reference.",
        "Deviations are clipped at two ranges; if there are more than 48 columns, one per service is their mean.",
    ),
)
class BaroChangePoint(TrainingFreeBaseline):
    """Detect when latencies and errors together enter a new regime.

    Parameters
    ----------
    hazard
        Probability that a regime ends after a sample.

    References
    ----------
    Pham, Ha, Zhang, BARO: robust root cause analysis for microservices via multivariate Bayesian online change
    point detection, FSE 2024; Adams, MacKay, Bayesian online changepoint detection, arXiv 0710.3742, 2007.
    """

    def __init__(self, *, hazard: float = HAZARD) -> None:
        self.hazard = hazard

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the probability that a regime began after the reference."""
        windows = detection_windows(episode)
        if windows.empty:
            return Detection.silent(SURE)
        runs, columns = self._compute_run_lengths(episode, windows)
        first = len(windows.reference)
        scores = runs.compute_start_probability(first)[first:]
        detection = Detection.from_scores(windows.times_ns, scores, SURE)
        if detection.alarm_ns is None:
            return detection
        since_s = (detection.alarm_ns - find_change(runs, windows, detection.alarm_ns)) / SECOND_NS
        detail = f"new regime since {since_s:g} s"
        evidence = tuple(
            Evidence(service=service, subject="latency and errors", score=score, detail=detail)
            for service, score in columns
        )
        return Detection.from_scores(windows.times_ns, scores, SURE, evidence=evidence[:5])

    def _compute_run_lengths(
        self, episode: EpisodeView, windows: Windows
    ) -> tuple[RunLengths, list[tuple[str, float]]]:
        """Return the run lengths, and the largest deviation of each column after the reference with its service."""
        samples, owners = build_regime_columns(episode, windows)
        late = np.abs(samples[len(windows.reference) :]).max(axis=0)
        order = sorted(zip(owners, late.tolist(), strict=True), key=lambda item: (-item[1], item[0]))
        return run_lengths(samples, hazard=self.hazard), order


def build_regime_columns(episode: EpisodeView, windows: Windows) -> tuple[Matrix, list[str]]:
    """Return scaled latencies and errors of reference and test window, and the service of each column.

    The scale is the range in the reference. Without latencies and errors, all metrics are used. More than
    `MAX_COLUMNS` columns are replaced by the mean |deviation| of each service.
    """
    role = episode.catalogue.role_of
    named = [column for column, (_, metric) in enumerate(windows.series) if role(metric) in ROLES]
    chosen = named or list(range(len(windows.series)))
    mean, sd = mean_and_sd(windows.reference)
    scale = with_metric_floor(sd, windows.series)[chosen]
    healthy = np.where(np.isfinite(windows.reference), windows.reference, mean)[:, chosen]
    scale = np.maximum(np.ptp(healthy, axis=0), scale)
    recent = deviations(windows.values[:, chosen], mean[chosen], scale, windows.absent[:, chosen])
    before = deviations(healthy, mean[chosen], scale, np.zeros(healthy.shape, dtype=bool))
    samples = np.clip(np.vstack([before, recent]), -CLIP, CLIP)
    owners = [windows.series[column][0] for column in chosen]
    if len(chosen) <= MAX_COLUMNS:
        return samples, owners
    names = sorted(set(owners))
    code = np.searchsorted(names, owners)
    joined = np.stack([np.abs(samples[:, code == index]).mean(axis=1) for index in range(len(names))], axis=1)
    within = joined[: len(healthy)]
    spread = np.maximum(np.ptp(within, axis=0), 1 / len(healthy))
    return np.clip((joined - within.mean(axis=0)) / spread, -CLIP, CLIP), names


def find_change(runs: RunLengths, windows: Windows, alarm_ns: int) -> int:
    """Return when the most likely run at the alarm began, but not before the end of the reference."""
    row = int(np.searchsorted(windows.times_ns, alarm_ns))
    sample = len(windows.reference) + row
    started = max(0, sample + 1 - int(runs.probability[sample, 1:].argmax() + 1) - len(windows.reference))
    return int(windows.times_ns[started]) - windows.step_ns


DRAWS = 499
LEVEL = 0.05


@baseline(
    "epsilon-diagnosis",
    title="ε-Diagnosis",
    task="localization",
    paper="Shan et al., ε-Diagnosis, WWW 2019",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    stochastic=True,
    speed="instant",
    complexity="O(S·T·(log T + P)), P permutations",
    departures=(
        "The statistic is the energy distance with 499 permutations; the public re-implementation correlates the two "
        "windows sample by sample and misses shifts of the level.",
        "Series are measured in healthy standard deviations, clipped at 100, so that units do not matter.",
        "Permutations assume exchangeable samples, which does not hold for autocorrelated series.",
        "Healthy samples come from the episode's reference.",
    ),
)
class EpsilonDiagnosis(TrainingFreeBaseline):
    """Rank services by the series whose distribution changed since the alarm.

    Series are ordered by p-value, then by distance. Series with p above `level` do not count.

    References
    ----------
    Shan et al., ε-Diagnosis: unsupervised and real-time diagnosis of small-window long-tail latency in
    large-scale microservice platforms, WWW 2019; Székely, Rizzo, Energy statistics, J. Stat. Plan. Inference, 2013.
    """

    def __init__(self, *, draws: int = DRAWS, level: float = LEVEL, seed: int = 0) -> None:
        self.draws = draws
        self.level = level
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by p-value, then by distance."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        samples = episode.once(("ranked samples", alarm_ns), lambda: ranked_samples(*standardise_windows(windows)))
        rng = episode_rng(self.seed, episode.episode)
        distance, p = samples.distances, permutation_p_values(samples, draws=self.draws, rng=rng)
        # The integer part is the rank by p-value; the fraction breaks ties by distance.
        score = np.where(p <= self.level, np.round((1 - p) * (self.draws + 1)) + distance / (1 + distance), 0.0)
        order = sorted(np.flatnonzero(score).tolist(), key=lambda column: (-score[column], windows.series[column]))
        metrics = {windows.series[column]: float(score[column]) for column in order}
        scores: dict[str, float] = {}
        for (service, _), value in metrics.items():
            scores.setdefault(service, value)
        evidence = [
            Evidence(
                service=windows.series[column][0],
                subject=windows.series[column][1],
                score=float(distance[column]),
                detail=f"energy distance in sigmas, p = {p[column]:.3f}",
            )
            for column in order[:10]
        ]
        return Ranking.of(scores, episode.services, evidence, metrics)
