"""Changes in the distribution of metrics: BARO's detector and ε-Diagnosis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from faultset.baselines.contract import Detection, Evidence, Ranking, TrainingFreeBaseline, best_by_service, episode_rng
from faultset.baselines.features.metric_alarms import series_evidence, standardise_windows
from faultset.baselines.features.windows import Windows, detection_windows, localization_windows
from faultset.baselines.registry import detector, localizer
from faultset.baselines.stats.dependence import permutation_p_values, ranked_samples
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView

HAZARD = 1 / 50
NEGLIGIBLE = 1e-12


@dataclass(frozen=True, kw_only=True)
class RunLengths:
    """Distribution of the length of the current run after each sample."""

    probability: Matrix
    """[T, T + 1] row t, column r: probability that the run has r samples after t + 1 samples."""

    def compute_start_probability(self, first: int) -> Matrix:
        """Return the probability [T] that the current run began at sample `first` or later and is not empty."""
        cumulative = np.cumsum(self.probability[:, 1:], axis=1)
        longest = np.arange(len(cumulative)) - first
        selected = cumulative[np.arange(len(cumulative)), np.maximum(longest, 0)]
        return np.where(longest >= 0, selected, 0.0)


def run_lengths(samples: Matrix, *, hazard: float = HAZARD) -> RunLengths:
    """Return the distribution of the run length after each sample, without looking ahead.

    Parameters
    ----------
    samples
        [T, d] finite values.
    hazard
        Probability that a regime ends after any one sample.

    Notes
    -----
    Runs with a probability below 1e-12 are dropped. The cost is O(T·R·d²) for R ≤ T remaining runs. Inverse scatter
    matrices get rank-one updates.

    References
    ----------
    Adams, MacKay, Bayesian online changepoint detection, arXiv 0710.3742, 2007.
    """
    count, dims = samples.shape
    probability = np.zeros((count, count + 1))
    length = np.zeros(1, dtype=np.int64)
    weight = np.ones(1)
    mean = np.zeros((1, dims))
    inverse = np.eye(dims)[None]
    log_det = np.zeros(1)
    for row, sample in enumerate(samples):
        kappa = 1.0 + length
        freedom = 2.0 + length
        centered = sample - mean
        pulled = np.einsum("rij,rj->ri", inverse, centered)
        distance = np.einsum("ri,ri->r", centered, pulled)
        gain = kappa / (kappa + 1)
        density = (
            gammaln((freedom + dims) / 2)
            - gammaln(freedom / 2)
            - dims / 2 * np.log(np.pi * (kappa + 1) / kappa)
            - log_det / 2
            - (freedom + dims) / 2 * np.log1p(gain * distance)
        )
        joint = weight * np.exp(density - density.max())
        total = joint.sum()
        weight = np.concatenate([[hazard], (1 - hazard) * joint / total])
        length = np.concatenate([[0], length + 1])
        widened = 1 + gain * distance
        inverse = inverse - (gain / widened)[:, None, None] * pulled[:, :, None] * pulled[:, None, :]
        mean = mean + centered / (kappa + 1)[:, None]
        keep = weight > NEGLIGIBLE
        probability[row, length[keep]] = weight[keep] / weight[keep].sum()
        weight = weight[keep] / weight[keep].sum()
        length = length[keep]
        # The new run starts from the prior.
        survivors = keep[1:]
        mean = np.concatenate([np.zeros((1, dims)), mean[survivors]])
        inverse = np.concatenate([np.eye(dims)[None], inverse[survivors]])
        log_det = np.concatenate([[0.0], (log_det + np.log(widened))[survivors]])
    return RunLengths(probability=probability)


ROLES = frozenset({"latency", "errors"})
MAX_COLUMNS = 48
CLIP = 2.0
SURE = 0.5


@detector(
    "baro-change-point",
    title="BARO (change point)",
    paper="Pham, Ha, Zhang, BARO, FSE 2024",
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
        samples, owners = build_regime_columns(episode, windows)
        runs, first = run_lengths(samples, hazard=self.hazard), len(windows.reference)

        def explain(row: int) -> list[Evidence]:
            alarm_ns = int(windows.times_ns[row])
            since_s = (alarm_ns - find_change(runs, windows, alarm_ns)) / SECOND_NS
            largest = np.abs(samples[first:]).max(axis=0).tolist()
            return [
                Evidence(
                    service=service, subject="latency and errors", score=score, detail=f"new regime since {since_s:g} s"
                )
                for service, score in sorted(zip(owners, largest, strict=True), key=lambda pair: (-pair[1], pair[0]))
            ][:5]

        scores = runs.compute_start_probability(first)[first:]
        return Detection.from_scores(windows.times_ns, scores, SURE, evidence=explain)


def build_regime_columns(episode: EpisodeView, windows: Windows) -> tuple[Matrix, list[str]]:
    """Return scaled latencies and errors of the reference and the test window, and the service of each column.

    The scale is the range in the reference. Without latencies and errors, all metrics are used. More than
    `MAX_COLUMNS` columns are replaced by the mean |deviation| of each service.
    """
    role = episode.catalogue.role_of
    preferred = [column for column, (_, metric) in enumerate(windows.series) if role(metric) in ROLES]
    chosen = preferred or list(range(len(windows.series)))
    mean, sd = mean_and_sd(windows.reference)
    scale = with_metric_floor(sd, windows.series)[chosen]
    healthy = np.where(np.isfinite(windows.reference), windows.reference, mean)[:, chosen]
    scale = np.maximum(np.ptp(healthy, axis=0), scale)
    recent = deviations(windows.values[:, chosen], mean[chosen], scale, windows.absent[:, chosen])
    healthy_deviations = deviations(healthy, mean[chosen], scale)
    samples = np.clip(np.vstack([healthy_deviations, recent]), -CLIP, CLIP)
    owners = [windows.series[column][0] for column in chosen]
    if len(chosen) <= MAX_COLUMNS:
        return samples, owners
    names = sorted(set(owners))
    code = np.searchsorted(names, owners)
    joined = np.stack([np.abs(samples[:, code == index]).mean(axis=1) for index in range(len(names))], axis=1)
    healthy_means = joined[: len(healthy)]
    spread = np.maximum(np.ptp(healthy_means, axis=0), 1 / len(healthy))
    return np.clip((joined - healthy_means.mean(axis=0)) / spread, -CLIP, CLIP), names


def find_change(runs: RunLengths, windows: Windows, alarm_ns: int) -> int:
    """Return when the most likely run at the alarm began, but not before the end of the reference."""
    row = int(np.searchsorted(windows.times_ns, alarm_ns))
    sample = len(windows.reference) + row
    first_row = max(0, sample + 1 - int(runs.probability[sample, 1:].argmax() + 1) - len(windows.reference))
    return int(windows.times_ns[first_row]) - windows.step_ns


DRAWS = 499
LEVEL = 0.05


@localizer(
    "epsilon-diagnosis",
    title="ε-Diagnosis",
    paper="Shan et al., ε-Diagnosis, WWW 2019",
    stochastic=True,
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
        evidence = series_evidence(
            windows.series, distance, order[:10], lambda column: f"energy distance in sigmas, p = {p[column]:.3f}"
        )
        return Ranking.of(best_by_service(metrics), episode.services, evidence, metrics)
