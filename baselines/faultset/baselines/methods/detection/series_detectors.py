"""Detectors on series or streams that are scored independently: BOCPD, SPOT and spectral residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from faultset.baselines.api.contract import CONSECUTIVE, Detection, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import HeldOut, read_held_out
from faultset.baselines.features.role_streams import stream_service_roles, stream_services
from faultset.baselines.stats.change_points import Spot
from faultset.baselines.stats.scaling import LEVEL, Matrix, bonferroni_sigmas, reference_limit, sustained

if TYPE_CHECKING:
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


@baseline(
    "bocpd",
    title="Bayesian online change points",
    task="detection",
    paper="Adams, MacKay, arXiv 0710.3742; Pham, Ha, Zhang, BARO, FSE 2024",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
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
class BOCPDDetector(TrainingFreeBaseline):
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

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the odds of a recent change."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent()
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


@baseline(
    "spot",
    title="SPOT",
    task="detection",
    paper=_PAPER,
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + fits·excesses)",
    departures=_DEPARTURES,
)
class SPOTDetector(TrainingFreeBaseline):
    """Detect deviations that are too rare under a Pareto tail fitted to the largest healthy deviations.

    Parameters
    ----------
    level
        Probability that a healthy sample is flagged.

    References
    ----------
    Siffer, Fouque, Termier, Largouet, Anomaly Detection in Streams with Extreme Value Theory, KDD 2017.
    """

    def __init__(self, *, level: float = LEVEL) -> None:
        self.level = level

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference; 1 is the current limit."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent(1.0)
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


@baseline(
    "spectral-residual",
    title="Spectral residual",
    task="detection",
    paper="Ren et al., KDD 2019 (SR)",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
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
class SpectralResidualDetector(TrainingFreeBaseline):
    """Detect samples that are salient among the recent samples of a stream.

    It detects spikes and steps, and therefore only the beginning of a lasting fault.

    References
    ----------
    Ren, Xu, Wang, Yi, Huang, Kou, Xing, Yang, Tong, Zhang, Time-Series Anomaly Detection Service at Microsoft, KDD
    2019.
    """

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its most salient stream."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent(LIMIT)
        streams = stream_services(held_out.lasting)
        healthy = len(streams.normal)
        window = max(MIN_WINDOW, healthy // 2)
        scores = residual_scores(streams.both, window).max(axis=1)
        first = healthy - window + 1
        # The method detects changes, not states, so the largest score counts until the end.
        largest = np.maximum.accumulate(scores[first:])
        return held_out.detection(largest, reference_limit(scores[:first], minimum=LIMIT), consecutive=1)
