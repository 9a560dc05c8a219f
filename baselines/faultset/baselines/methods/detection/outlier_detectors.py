"""Detectors that score each sample by its distance from the healthy samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Detection, TrainingFreeBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import hold_out_scores, read_held_out, split_folds
from faultset.baselines.features.role_streams import stream_service_roles, stream_signals
from faultset.baselines.stats.outlier_scores import (
    ecod_scores,
    forest_scores,
    local_outlier_factors,
    principal_distances,
    robust_mahalanobis,
    shrunk_mahalanobis,
)
from faultset.baselines.stats.scaling import Matrix, reference_limit

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

PRINCIPAL_CLIP = 20.0
_CALIBRATED = "One in 370 healthy samples exceeds the limit, which comes from held-out scores of the reference."
_STREAMS = "The input is log(1 + largest |z|) of each role of each service instead of every series."
_SIGNALS = "The input is log(1 + largest |z|) of each signal of the system: it needs several samples per dimension."


@baseline(
    "isolation-forest",
    title="Isolation forest",
    task="detection",
    paper="Liu, Ting, Zhou, ICDM 2008",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    stochastic=True,
    speed="instant",
    complexity="O(S·T + trees·(n + T)·log n)",
    departures=(
        _SIGNALS,
        "Each tree is grown from half of the reference; a healthy sample is scored by trees grown without it.",
        "The limit is the largest score of the reference, because bounded scores have no tail to fit.",
    ),
)
class IsolationForestDetector(TrainingFreeBaseline):
    """Detect samples that random splits isolate early.

    Parameters
    ----------
    trees
        Number of trees.

    References
    ----------
    Liu, Ting, Zhou, Isolation Forest, ICDM 2008.
    """

    def __init__(self, *, trees: int = 100, seed: int = 0) -> None:
        self.trees = trees
        self.seed = seed

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference between 0 and 1."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent(0.5)
        streams = stream_signals(episode, held_out)
        healthy, scores = forest_scores(streams.normal, streams.values, trees=self.trees, seed=self.seed)
        return held_out.detection(scores, float(healthy.max()))


@baseline(
    "lof",
    title="Local outlier factor",
    task="detection",
    paper="Breunig, Kriegel, Ng, Sander, SIGMOD 2000",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + p·n·T)",
    departures=(
        _STREAMS,
        "Only reference samples are neighbours: 20, or half of the reference if that is fewer.",
        _CALIBRATED,
    ),
)
class LocalOutlierFactorDetector(TrainingFreeBaseline):
    """Detect samples in regions that are much less dense than their neighbours' regions.

    Parameters
    ----------
    neighbours
        Number of healthy neighbours.

    References
    ----------
    Breunig, Kriegel, Ng, Sander, LOF: Identifying Density-Based Local Outliers, SIGMOD 2000.
    """

    def __init__(self, *, neighbours: int = 20) -> None:
        self.neighbours = neighbours

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference; 1 means as dense as its neighbours."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent(1.0)
        streams = stream_service_roles(episode, held_out)

        def score(normal: Matrix, points: Matrix) -> Matrix:
            return local_outlier_factors(normal, points, neighbours=self.neighbours)

        limit = reference_limit(hold_out_scores(streams.normal, score))
        return held_out.detection(score(streams.normal, streams.values), limit)


@baseline(
    "mahalanobis",
    title="Mahalanobis distance",
    task="detection",
    paper="Mahalanobis, 1936; Ledoit, Wolf, J. Multivariate Analysis 2004",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + p²·n + p³)",
    departures=(
        _STREAMS,
        "The covariance uses Ledoit-Wolf shrinkage, because there are more streams than healthy samples.",
        _CALIBRATED,
    ),
)
class MahalanobisDetector(TrainingFreeBaseline):
    """Detect samples with a large Mahalanobis distance from the healthy mean of all streams.

    References
    ----------
    Mahalanobis, On the generalised distance in statistics, 1936; Ledoit, Wolf, A well-conditioned estimator for
    large-dimensional covariance matrices, 2004.
    """

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its distance."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent()
        streams = stream_service_roles(episode, held_out)
        limit = reference_limit(hold_out_scores(streams.normal, shrunk_mahalanobis))
        return held_out.detection(shrunk_mahalanobis(streams.normal, streams.values), limit)


@baseline(
    "mcd",
    title="Minimum covariance determinant",
    task="detection",
    paper="Rousseeuw, Van Driessen, Technometrics 1999",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    stochastic=True,
    speed="instant",
    complexity="O(S·T + starts·n·p²)",
    departures=(
        _SIGNALS,
        "Signals that hardly vary in the reference are measured separately.",
        _CALIBRATED,
    ),
)
class MCDDetector(TrainingFreeBaseline):
    """Detect samples far from the centre of the densest part of the reference.

    References
    ----------
    Rousseeuw, Van Driessen, A Fast Algorithm for the Minimum Covariance Determinant Estimator, Technometrics 1999.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its robust distance."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent()
        streams = stream_signals(episode, held_out)

        def score(normal: Matrix, points: Matrix) -> Matrix:
            return robust_mahalanobis(normal, points, seed=self.seed)

        limit = reference_limit(hold_out_scores(streams.normal, score, count=3))
        return held_out.detection(score(streams.normal, streams.values), limit)


@baseline(
    "ecod",
    title="ECOD",
    task="detection",
    paper="Li, Zhao, Hu, Botta, Ionescu, Chen, TKDE 2022",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T·n)",
    departures=(
        "Tail probabilities come from the reference only, with 1 added to both counts; the published code also counts "
        "the test samples, so that scores depend on later data.",
        _CALIBRATED,
    ),
)
class ECODDetector(TrainingFreeBaseline):
    """Detect samples in the tails of many empirical distributions at once.

    References
    ----------
    Li, Zhao, Hu, Botta, Ionescu, Chen, ECOD: Unsupervised Outlier Detection Using Empirical Cumulative Distribution
    Functions, TKDE 2022.
    """

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its summed tail surprises."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent()
        windows = held_out.windows
        values = windows.values.copy()
        values[windows.absent] = np.inf
        limit = reference_limit(hold_out_scores(windows.reference, ecod_scores))
        return held_out.detection(ecod_scores(windows.reference, values), limit)


@baseline(
    "pca-spe",
    title="PCA with SPE and T²",
    task="detection",
    paper="Jackson, Mudholkar, Technometrics 1979; Hotelling, 1931",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·n² + S·n·T)",
    departures=(
        "Both limits come from held-out scores of the reference, because their formulas need more samples than series.",
        "Deviations are clipped at twenty sigma.",
    ),
)
class PCADetector(TrainingFreeBaseline):
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

    def __init__(self, *, variance: float = 0.95) -> None:
        self.variance = variance

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the larger ratio of a distance to its limit."""
        held_out = read_held_out(episode)
        if held_out is None:
            return Detection.silent(1.0)
        normal, values = (
            held_out.normal.clip(-PRINCIPAL_CLIP, PRINCIPAL_CLIP),
            held_out.z.clip(-PRINCIPAL_CLIP, PRINCIPAL_CLIP),
        )
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
