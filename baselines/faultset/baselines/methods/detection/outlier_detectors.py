"""Detectors that score each sample by its distance from the healthy samples."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from faultset.baselines.contract import Detection
from faultset.baselines.features.held_out import (
    FOLDS,
    HeldOut,
    HeldOutDetector,
    Score,
    divide_by_limits,
    hold_out_scores,
    remove_spikes,
    split_folds,
)
from faultset.baselines.features.role_streams import Streams, stream_service_roles, stream_signals
from faultset.baselines.registry import detector
from faultset.baselines.stats.outlier_scores import (
    ecod_scores,
    forest_scores,
    local_outlier_factors,
    principal_distances,
    robust_mahalanobis,
    shrunk_mahalanobis,
)
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, reference_limit, with_metric_floor
from faultset.datasets.views import EpisodeView

PRINCIPAL_CLIP = 20.0
_CALIBRATED = "One in 370 healthy samples exceeds the limit, which comes from held-out scores of the reference."
_STREAMS = "The input is log(1 + largest |z|) of each role of each service instead of every series."
_SIGNALS = "The input is log(1 + largest |z|) of each signal of the system: it needs several samples per dimension."


def _score_points(held_out: HeldOut, streams: Streams, score: Score, *, folds: int = FOLDS) -> Detection:
    """Score the test window by its distance from the reference; the limit comes from held-out reference samples."""
    limit = reference_limit(hold_out_scores(streams.normal, score, folds))
    return held_out.detection(score(streams.normal, streams.values), limit)


@detector(
    "isolation-forest",
    title="Isolation forest",
    paper="Liu, Ting, Zhou, ICDM 2008",
    stochastic=True,
    complexity="O(S·T + trees·(n + T)·log n)",
    departures=(
        _SIGNALS,
        "Each tree is grown from half of the reference; a healthy sample is scored by trees grown without it.",
        "The limit is the largest score of the reference, because bounded scores have no tail to fit.",
    ),
)
class IsolationForestDetector(HeldOutDetector):
    """Detect samples that random splits isolate early.

    Parameters
    ----------
    trees
        Number of trees.

    References
    ----------
    Liu, Ting, Zhou, Isolation Forest, ICDM 2008.
    """

    silent_threshold = 0.5

    def __init__(self, *, trees: int = 100, seed: int = 0) -> None:
        self.trees = trees
        self.seed = seed

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference between 0 and 1."""
        streams = stream_signals(episode, held_out)
        healthy, scores = forest_scores(streams.normal, streams.values, trees=self.trees, seed=self.seed)
        return held_out.detection(scores, float(healthy.max()))


@detector(
    "lof",
    title="Local outlier factor",
    paper="Breunig, Kriegel, Ng, Sander, SIGMOD 2000",
    complexity="O(S·T + p·n·T)",
    departures=(
        _STREAMS,
        "Only reference samples are neighbours: 20, or half of the reference if that is fewer.",
        _CALIBRATED,
    ),
)
class LocalOutlierFactorDetector(HeldOutDetector):
    """Detect samples in regions that are much less dense than their neighbours' regions.

    Parameters
    ----------
    neighbours
        Number of healthy neighbours.

    References
    ----------
    Breunig, Kriegel, Ng, Sander, LOF: Identifying Density-Based Local Outliers, SIGMOD 2000.
    """

    silent_threshold = 1.0

    def __init__(self, *, neighbours: int = 20) -> None:
        self.neighbours = neighbours

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference; 1 means as dense as its neighbours."""
        score = functools.partial(local_outlier_factors, neighbours=self.neighbours)
        return _score_points(held_out, stream_service_roles(episode, held_out), score)


@detector(
    "mahalanobis",
    title="Mahalanobis distance",
    paper="Mahalanobis, 1936; Ledoit, Wolf, J. Multivariate Analysis 2004",
    complexity="O(S·T + p²·n + p³)",
    departures=(
        _STREAMS,
        "The covariance uses Ledoit-Wolf shrinkage, because there are more streams than healthy samples.",
        _CALIBRATED,
    ),
)
class MahalanobisDetector(HeldOutDetector):
    """Detect samples with a large Mahalanobis distance from the healthy mean of all streams.

    References
    ----------
    Mahalanobis, On the generalised distance in statistics, 1936; Ledoit, Wolf, A well-conditioned estimator for
    large-dimensional covariance matrices, 2004.
    """

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference by its distance."""
        return _score_points(held_out, stream_service_roles(episode, held_out), shrunk_mahalanobis)


@detector(
    "mcd",
    title="Minimum covariance determinant",
    paper="Rousseeuw, Van Driessen, Technometrics 1999",
    stochastic=True,
    complexity="O(S·T + starts·n·p²)",
    departures=(
        _SIGNALS,
        "Signals that hardly vary in the reference are measured separately.",
        _CALIBRATED,
    ),
)
class MCDDetector(HeldOutDetector):
    """Detect samples far from the centre of the densest part of the reference.

    References
    ----------
    Rousseeuw, Van Driessen, A Fast Algorithm for the Minimum Covariance Determinant Estimator, Technometrics 1999.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference by its robust distance."""
        score = functools.partial(robust_mahalanobis, seed=self.seed)
        return _score_points(held_out, stream_signals(episode, held_out), score, folds=3)


@detector(
    "ecod",
    title="ECOD",
    paper="Li, Zhao, Hu, Botta, Ionescu, Chen, TKDE 2022",
    complexity="O(S·T·n)",
    departures=(
        "Tail probabilities come from the reference only, with 1 added to both counts; the published code also counts "
        "the test samples, so that scores depend on later data.",
        _CALIBRATED,
    ),
)
class ECODDetector(HeldOutDetector):
    """Detect samples in the tails of many empirical distributions at once.

    References
    ----------
    Li, Zhao, Hu, Botta, Ionescu, Chen, ECOD: Unsupervised Outlier Detection Using Empirical Cumulative Distribution
    Functions, TKDE 2022.
    """

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference by its summed tail surprises."""
        windows = held_out.windows
        values = windows.values.copy()
        values[windows.absent] = np.inf
        limit = reference_limit(hold_out_scores(windows.reference, ecod_scores))
        return held_out.detection(ecod_scores(windows.reference, values), limit)


@detector(
    "pca-spe",
    title="PCA with SPE and T²",
    paper="Jackson, Mudholkar, Technometrics 1979; Hotelling, 1931",
    complexity="O(S·n² + S·n·T)",
    departures=(
        "Both limits come from held-out scores of the reference, because their formulas need more samples than series.",
        "Deviations are clipped at twenty sigma.",
    ),
)
class PCADetector(HeldOutDetector):
    """Detect samples far from the principal subspace of the reference, or far from its centre within it.

    Parameters
    ----------
    variance
        Share of the healthy variance in the subspace.

    References
    ----------
    Jackson, Mudholkar, Control Procedures for Residuals Associated With Principal Component Analysis, 1979;
    Hotelling, The Generalization of Student's Ratio, 1931.
    """

    silent_threshold = 1.0

    def __init__(self, *, variance: float = 0.95) -> None:
        self.variance = variance

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference by the larger ratio of a distance to its limit."""
        normal, values = (z.clip(-PRINCIPAL_CLIP, PRINCIPAL_CLIP) for z in (held_out.normal, held_out.z))
        spe_limit, t2_limit = self._limits(normal)
        spe, t2 = principal_distances(normal, values, variance=self.variance)
        return held_out.detection(np.maximum(spe / spe_limit, t2 / t2_limit), 1.0)

    def _limits(self, normal: Matrix) -> tuple[float, float]:
        pairs = [
            principal_distances(normal[rest], normal[block], variance=self.variance)
            for rest, block in split_folds(len(normal))
        ]
        spe, t2 = (reference_limit(np.concatenate(parts), minimum=1e-9) for parts in zip(*pairs, strict=True))
        return spe, t2


SUBSEQUENCE_LENGTH = 8
PROFILE_CLIP = 20.0
Pieces = npt.NDArray[np.floating]
"""[S, count, m] subsequences of each series."""


def subsequences(series: npt.NDArray[np.floating], length: int) -> Pieces:
    """Return all subsequences of each column of [T, S], as [S, T - length + 1, length]."""
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(series, length, axis=0).swapaxes(0, 1))


def compute_nearest_distances(tested: Pieces, healthy: Pieces, *, min_distance: int = 0) -> Matrix:
    """Return the Euclidean distance of each subsequence to the nearest healthy subsequence of the same series.

    Values are not normalised, because that would hide a shift of the level.

    Parameters
    ----------
    min_distance
        Subsequences whose starts are closer than this do not match. If positive, `tested` and `healthy` must be equal.

    Returns
    -------
    ndarray
        [S, number of tested subsequences]
    """
    squared = (
        (tested**2).sum(axis=-1)[:, :, None]
        + (healthy**2).sum(axis=-1)[:, None, :]
        - 2 * (tested @ healthy.swapaxes(1, 2))
    )
    if min_distance:
        position = np.arange(tested.shape[1])
        squared[:, np.abs(position[:, None] - position) < min_distance] = np.inf
    return np.sqrt(np.maximum(squared.min(axis=-1), 0.0)).astype(float)


@detector(
    "matrix-profile",
    title="Matrix profile",
    paper="Yeh et al., ICDM 2016; Linardi et al., AAMP without normalisation",
    complexity="O(S·T·n·m)",
    departures=(
        "Subsequences are compared with the reference only, so that nothing looks ahead and a lasting fault does not "
        "match itself.",
        "Distances are not normalised, and are divided by the largest distance of the series in the reference.",
        "A sample has the score of its most discordant series; deviations of single samples are removed first.",
    ),
)
class MatrixProfileDetector(HeldOutDetector):
    """Detect subsequences that are unlike all of the reference.

    Parameters
    ----------
    length
        Number of samples in a subsequence; at most a quarter of the reference.

    References
    ----------
    Yeh et al., Matrix Profile I: All Pairs Similarity Joins for Time Series, ICDM 2016.
    """

    silent_threshold = 1.0

    def __init__(self, *, length: int = SUBSEQUENCE_LENGTH) -> None:
        self.length = length

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score every sample after the reference by the subsequence that ends with it."""
        normal, values = _lasting_deviations(held_out)
        healthy = len(normal)
        length = max(2, min(self.length, healthy // 4))
        alive = np.abs(np.vstack([normal, values])).max(axis=0) > 1e-6
        if not alive.any():
            return held_out.detection(np.zeros(len(values)), 1.0)
        pieces = subsequences(np.vstack([normal, values])[:, alive].astype(np.float32), length)
        first = healthy - length + 1
        usual = compute_nearest_distances(pieces[:, :first], pieces[:, :first], min_distance=max(1, length // 2))
        tested = compute_nearest_distances(pieces[:, first:], pieces[:, :first])
        # Ignore distances below half a sigma over the whole length.
        ratios, limit = divide_by_limits(usual.T, tested.T, 0.5 * np.sqrt(length))
        shares = np.zeros(values.shape)
        shares[:, alive] = ratios * np.sign(values[:, alive])
        return held_out.detection(
            ratios.max(axis=1), limit, by_series=shares, detail="times the largest distance of a healthy subsequence"
        )


def _lasting_deviations(held_out: HeldOut) -> tuple[Matrix, Matrix]:
    """Return the lasting deviations of the reference and the test window on the same scale."""
    reference = held_out.windows.reference
    mean, sd = mean_and_sd(reference)
    normal = deviations(reference, mean, with_metric_floor(sd, held_out.windows.series))
    z = remove_spikes(np.vstack([normal, held_out.z])).clip(-PROFILE_CLIP, PROFILE_CLIP)
    return z[: len(normal)], z[len(normal) :]
