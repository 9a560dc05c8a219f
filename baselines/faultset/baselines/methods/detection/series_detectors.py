"""Detectors on series or streams that are scored independently: BOCPD, SPOT and spectral residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from faultset.baselines.contract import CONSECUTIVE, Detection
from faultset.baselines.features.held_out import HeldOut, HeldOutDetector
from faultset.baselines.features.role_streams import stream_service_roles, stream_services
from faultset.baselines.registry import detector
from faultset.baselines.stats.scaling import LEVEL, Matrix, bonferroni_sigmas, reference_limit, sustained
from faultset.datasets.views import EpisodeView

EXPECTED_RUN = 250.0
MAX_RUN = 60
RECENT = 5
MIN_SPREAD = 0.1
_MIN_PROBABILITY = 1e-12
_TINY_PROBABILITY = 1e-300


def run_lengths(
    streams: Matrix,
    starts: Sequence[int],
    *,
    expected_run: float = EXPECTED_RUN,
    prior_samples: float = 2.0,
    longest: int = MAX_RUN,
) -> Matrix:
    """Return the run-length posterior of each group of streams after each sample.

    Within a run, each stream is normally distributed with unknown mean and variance; the normal-gamma prior is centred
    at mean 0 and variance 1. The streams of a group change together, with a constant hazard. A stream is ignored until
    it differs from 0.

    Parameters
    ----------
    streams
        [T, p] standardised streams, with adjacent columns for each group.
    starts
        First column of each of the g groups.
    expected_run
        Mean number of samples between changes.
    prior_samples
        Number of samples that the prior of the variance corresponds to.
    longest
        Maximum run length; a longer run is treated as a run of its last `longest` samples.

    Returns
    -------
    ndarray
        [T, g, longest + 1]; entry r is the probability that the current run has r samples.
    """
    steps, count = streams.shape
    hazard = 1 / expected_run
    lengths = np.arange(longest + 1)
    kappa, alpha = 1.0 + lengths, (prior_samples + lengths) / 2
    widening = (kappa + 1) / (kappa * alpha)
    constant = gammaln(alpha + 0.5) - gammaln(alpha) - 0.5 * np.log(2 * np.pi * alpha)
    mean = np.zeros((count, longest + 1))
    beta = np.full((count, longest + 1), prior_samples / 2)
    belief = np.zeros((len(starts), longest + 1))
    belief[:, 0] = 1.0
    has_changed = np.maximum.accumulate(streams != 0, axis=0)
    posterior = np.empty((steps, len(starts), longest + 1))
    for step, values in enumerate(streams):
        deviation = values[:, None] - mean
        variance = beta * widening
        density = constant - 0.5 * np.log(variance) - (alpha + 0.5) * np.log1p(deviation**2 / (2 * alpha * variance))
        joint = np.log(np.maximum(belief, _TINY_PROBABILITY)) + np.add.reduceat(
            density * has_changed[step][:, None], starts, axis=0
        )
        joint = np.exp(joint - joint.max(axis=1, keepdims=True))
        growth = joint * ((1 - hazard) / joint.sum(axis=1, keepdims=True))
        belief[:, 0] = hazard
        belief[:, 1:] = growth[:, :-1]
        belief[:, -1] += growth[:, -1]
        posterior[step] = belief
        mean, beta = (
            _extend_runs(mean + deviation / (kappa + 1), 0.0),
            _extend_runs(beta + kappa * deviation**2 / (2 * (kappa + 1)), prior_samples / 2),
        )
    return posterior


def _extend_runs(statistics: Matrix, prior: float) -> Matrix:
    """Return the statistics of runs that are one sample longer; the first entry is the prior of a new run."""
    return np.hstack([np.full((len(statistics), 1), prior), statistics[:, :-1]])


def recent_change(posterior: Matrix, recent: int = RECENT) -> Matrix:
    """Return the decimal log odds that the current run began within the last `recent` samples."""
    belief = posterior[..., 1:]
    probability = (belief[..., :recent].sum(axis=-1) / belief.sum(axis=-1)).clip(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    return np.log10(probability / (1 - probability))


@detector(
    "bocpd",
    title="Bayesian online change points",
    paper="Adams, MacKay, arXiv 0710.3742; Pham, Ha, Zhang, BARO, FSE 2024",
    complexity="O(S·T + p·T·R)",
    departures=(
        "The input is log(1 + largest |z|) of each role of each service, without single-sample spikes; the roles of a "
        "service change together, while BARO has one model of all metrics.",
        "Streams are standardised by the reference only; BARO uses the whole window and so looks ahead.",
        "The prior of the variance corresponds to as many samples as the reference has, so that a few quiet samples "
        "are not a change.",
        "Runs are merged beyond 60 samples.",
        "The score is the largest log odds so far of a change within five samples; of two consecutive samples, the "
        "smaller log odds count.",
        "The threshold is even odds, or the largest score of the reference if that is higher.",
    ),
)
class BOCPDDetector(HeldOutDetector):
    """Detect the beginning of a new run in the streams of a service.

    Parameters
    ----------
    expected_run
        Mean number of samples between changes in a healthy system.

    References
    ----------
    Adams, MacKay, Bayesian Online Changepoint Detection, 2007; Pham, Ha, Zhang, BARO: Robust Root Cause Analysis for
    Microservices via Multivariate Bayesian Online Change Point Detection, FSE 2024.
    """

    def __init__(self, *, expected_run: float = EXPECTED_RUN) -> None:
        self.expected_run = expected_run

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference by the odds of a recent change."""
        streams = stream_service_roles(episode, held_out.lasting)
        center, spread = streams.normal.mean(axis=0), np.maximum(streams.normal.std(axis=0), MIN_SPREAD)
        owners = [service for service, _ in streams.names]
        starts = [column for column, owner in enumerate(owners) if column == 0 or owners[column - 1] != owner]
        posterior = run_lengths(
            (streams.both - center) / spread, starts, expected_run=self.expected_run, prior_samples=len(streams.normal)
        )
        has_changed = np.logical_or.reduceat(np.maximum.accumulate(streams.both != 0, axis=0), starts, axis=1)
        odds = np.where(has_changed, recent_change(posterior), np.log10(_MIN_PROBABILITY)).max(axis=1)
        healthy = len(streams.normal)
        # Skip the first samples, because every run is recent there.
        limit = reference_limit(odds[2 * RECENT : healthy])
        # A change keeps its score when its run grows longer; a single spike does not.
        lasting = np.minimum(odds[healthy:], np.concatenate([odds[healthy : healthy + 1], odds[healthy:-1]]))
        return held_out.detection(np.maximum.accumulate(lasting), limit, consecutive=1)


MIN_EXCESSES = 10
_GRID = 33
_ZOOMS = 4
_MIN_GAMMA = 1e-8


def fit_pareto(excesses: Matrix) -> tuple[float, float]:
    """Return the maximum-likelihood shape gamma and scale sigma of positive excesses.

    Grimshaw's reduction leaves one unknown, theta = gamma / sigma. A grid search that is refined around its best point
    maximises the likelihood and also handles a maximum at the border. The exponential law (gamma = 0) is always a
    candidate.
    """
    count = len(excesses)
    mean = float(excesses.mean()) if count else 0.0
    if count < 2 or mean <= 0:
        return 0.0, max(mean, 1e-12)
    unit = excesses / mean
    top = float(unit.max())
    # Below gamma = -1/2 the likelihood is not regular; above 1 the mean does not exist.
    candidates = np.concatenate([-np.geomspace(1e-4, 0.98, _GRID)[::-1] / top, np.geomspace(1e-4, 50.0, _GRID)])
    fit = (-np.inf, 0.0, 1.0)
    for _ in range(_ZOOMS):
        gammas = np.log1p(np.multiply.outer(candidates, unit)).mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            likelihood = -np.log(gammas / candidates) - gammas - 1
        likelihood[(gammas < -0.5) | ~np.isfinite(likelihood)] = -np.inf
        best = int(likelihood.argmax())
        fit = (float(likelihood[best]), float(gammas[best]), float(gammas[best] / candidates[best]))
        lower, upper = candidates[max(best - 1, 0)], candidates[min(best + 1, len(candidates) - 1)]
        candidates = np.linspace(lower, upper, 9)
        candidates = candidates[np.abs(candidates) > 1e-12]
    if fit[0] <= -1.0 or abs(fit[1]) < _MIN_GAMMA:
        return 0.0, mean
    return fit[1], fit[2] * mean


def tail_quantile(level: float, threshold: float, gamma: float, sigma: float, samples: int, excesses: int) -> float:
    """Return the value that a sample exceeds with probability `level`, from a Pareto tail above `threshold`.

    >>> round(tail_quantile(1e-3, 10, 0.1, 2, 1000, 20), 4), round(tail_quantile(1e-3, 10, 0.0, 2, 1000, 20), 4)
    (16.9857, 15.9915)
    """
    rarity = level * samples / max(excesses, 1)
    if abs(gamma) < _MIN_GAMMA:
        return threshold - sigma * float(np.log(rarity))
    return threshold + sigma / gamma * (rarity**-gamma - 1)


@dataclass
class Spot:
    """Limit for a stream of magnitudes; it is updated with the values below it.

    Parameters
    ----------
    level
        Probability that a healthy value exceeds the limit.
    fallback
        Limit while there are too few excesses to fit a tail.
    initial
        Quantile of the values passed to `start` at which the tail begins.
    growth
        Relative growth in the number of excesses that starts a new fit.
    """

    level: float
    fallback: float
    initial: float = 0.98
    growth: float = 0.05

    def start(self, values: Matrix) -> Spot:
        """Fit the tail to healthy values."""
        self.samples = len(values)
        self.tail_begins = float(np.quantile(values, self.initial)) if len(values) else 0.0
        self._excesses = values[values > self.tail_begins] - self.tail_begins
        self._refit()
        return self

    @property
    def limit(self) -> float:
        """Return the value above which an observation is extreme."""
        count = len(self._excesses)
        if count < MIN_EXCESSES:
            return self.fallback
        quantile = tail_quantile(self.level, self.tail_begins, self.gamma, self.sigma, self.samples, count)
        return max(self.tail_begins, quantile)

    def learn(self, values: Matrix) -> None:
        """Learn from the values that do not exceed the limit."""
        ordinary = values[values <= self.limit]
        self.samples += len(ordinary)
        excesses = ordinary[ordinary > self.tail_begins] - self.tail_begins
        self._excesses = np.concatenate([self._excesses, excesses])
        if len(self._excesses) > (1 + self.growth) * self._fitted_count:
            self._refit()

    def _refit(self) -> None:
        self.gamma, self.sigma = fit_pareto(self._excesses)
        self._fitted_count = len(self._excesses)


_PAPER = "Siffer, Fouque, Termier, Largouet, KDD 2017"
_DEPARTURES = (
    "A single series has too few samples for a tail, so held-out deviations of all varying series are pooled.",
    "The level of a sample is divided by the number of series.",
    "The tail probability uses the smaller of two consecutive deviations of a series, so single spikes are ignored.",
    "The tail is fitted again after 5 % more excesses; with fewer than ten, the limit of K-sigma applies.",
)
_DETAIL = "sigmas for two samples"


def detect_extremes(held_out: HeldOut, level: float) -> Detection:
    """Score each sample by the ratio of its largest sustained deviation to the current limit.

    A sustained deviation is the smaller of two consecutive deviations of a series.
    """
    # Constant series would fill the pool with zeros.
    varying = np.abs(held_out.normal).max(axis=0) > 1e-6
    count = max(1, int(varying.sum()))
    fallback = bonferroni_sigmas(count, level=level, samples=len(held_out.normal))
    healthy = sustained(held_out.normal[:, varying], CONSECUTIVE)[CONSECUTIVE - 1 :]
    spot = Spot(level / count, fallback).start(healthy.ravel())
    lasting = sustained(held_out.z, CONSECUTIVE)
    limits = np.empty(len(lasting))
    for row, values in enumerate(lasting):
        limits[row] = spot.limit
        spot.learn(values[varying])
    scores = lasting.max(axis=1) / np.maximum(limits, 1e-9)
    return held_out.detection(scores, 1.0, by_series=np.sign(held_out.z) * lasting, detail=_DETAIL, consecutive=1)


@detector("spot", title="SPOT", paper=_PAPER, complexity="O(S·T + fits·excesses)", departures=_DEPARTURES)
class SPOTDetector(HeldOutDetector):
    """Detect deviations that are too rare under a Pareto tail fitted to the largest healthy deviations.

    Parameters
    ----------
    level
        Probability that a healthy sample is flagged.

    References
    ----------
    Siffer, Fouque, Termier, Largouet, Anomaly Detection in Streams with Extreme Value Theory, KDD 2017.
    """

    silent_threshold = 1.0

    def __init__(self, *, level: float = LEVEL) -> None:
        self.level = level

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference; 1 is the current limit."""
        return detect_extremes(held_out, self.level)


AVERAGE_WIDTH = 3
"""Number of frequencies in the moving average of the spectrum."""
COMPARISON_SAMPLES = 21
"""Number of earlier samples whose mean saliency is compared with that of a sample."""
EXTRAPOLATED_SAMPLES = 5
LIMIT = 3.0
MIN_WINDOW = 8
MIN_STD = 0.05
"""Streams with a smaller standard deviation count as constant."""
_TINY = 1e-8


def saliency(streams: Matrix) -> Matrix:
    """Return the saliency map of each stream along the last axis.

    It is `|IFFT(exp(R + i·phase))|`, where R is the log amplitude spectrum minus its moving average over three
    frequencies.

    >>> series = np.ones(16)
    >>> series[10] = 5
    >>> int(saliency(series).argmax())
    10
    """
    spectrum = np.fft.fft(streams, axis=-1)
    amplitude = np.abs(spectrum)
    # Absent frequencies have no phase, and their logarithm must stay finite.
    log_amplitude = np.log(np.maximum(amplitude, _TINY))
    padding = [(0, 0)] * (streams.ndim - 1) + [(AVERAGE_WIDTH // 2, AVERAGE_WIDTH // 2)]
    padded = np.pad(log_amplitude, padding, mode="edge")
    smooth = np.lib.stride_tricks.sliding_window_view(padded, AVERAGE_WIDTH, axis=-1).mean(axis=-1)
    phase = spectrum / np.maximum(amplitude, _TINY)
    return np.abs(np.fft.ifft(np.exp(log_amplitude - smooth) * phase, axis=-1))


def extrapolate(streams: Matrix, ahead: int = EXTRAPOLATED_SAMPLES) -> Matrix:
    """Append expected values to each stream, so that the last sample is not at the edge.

    The last sample is excluded from the estimate, as in the published code. Otherwise the appended values would deviate
    more than an outlier.

    >>> extrapolate(np.array([0.0, 1, 2, 3, 4, 5, 6, 60]), 2)[-3:].tolist()
    [60.0, 7.0, 7.0]
    """
    recent = streams[..., -2 - ahead : -1]
    steps = np.arange(recent.shape[-1] - 1, 0, -1)
    gradient = ((recent[..., -1:] - recent[..., :-1]) / steps).mean(axis=-1)
    return np.concatenate([streams, np.repeat((recent[..., -1] + gradient)[..., None], ahead, axis=-1)], axis=-1)


def residual_scores(streams: Matrix, window: int) -> Matrix:
    """Score each row by the saliency within the last `window` rows.

    Parameters
    ----------
    streams
        [T, p]; the first `window - 1` rows have no score.

    Returns
    -------
    ndarray
        [T - window + 1, p] relative excess of the last sample's saliency over the mean of the previous samples.
    """
    pieces = np.lib.stride_tricks.sliding_window_view(streams, window, axis=0)
    salience = saliency(extrapolate(pieces))
    earlier_mean = salience[..., max(0, window - 1 - COMPARISON_SAMPLES) : window - 1].mean(axis=-1)
    scores = (salience[..., window - 1] - earlier_mean) / np.maximum(earlier_mean, _TINY)
    # Saliency has no scale, so rounding errors of a constant stream would score high.
    return np.where(pieces.std(axis=-1) > MIN_STD, scores, 0.0)


@detector(
    "spectral-residual",
    title="Spectral residual",
    paper="Ren et al., KDD 2019 (SR)",
    complexity="O(S·T + p·T·w·log w)",
    departures=(
        "The input is log(1 + largest |z|) of each service, without single-sample spikes, because any change of a "
        "constant series is salient; a sample has the score of its most salient stream.",
        "The window ends at the scored sample and is half as long as the reference.",
        "The threshold is 3, or the largest score of the reference if that is higher.",
        "The score is the largest so far, because a lasting fault is salient only at its beginning.",
        "The paper's convolutional network is left out.",
    ),
)
class SpectralResidualDetector(HeldOutDetector):
    """Detect samples that are salient among the recent samples of a stream.

    It detects spikes and steps, and therefore only the beginning of a lasting fault.

    References
    ----------
    Ren, Xu, Wang, Yi, Huang, Kou, Xing, Yang, Tong, Zhang, Time-Series Anomaly Detection Service at Microsoft, KDD
    2019.
    """

    silent_threshold = LIMIT

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference by its most salient stream."""
        streams = stream_services(held_out.lasting)
        healthy = len(streams.normal)
        window = max(MIN_WINDOW, healthy // 2)
        scores = residual_scores(streams.both, window).max(axis=1)
        first = healthy - window + 1
        # The method detects changes, not states, so the largest score counts until the end.
        largest = np.maximum.accumulate(scores[first:])
        return held_out.detection(largest, reference_limit(scores[:first], minimum=LIMIT), consecutive=1)
