"""Detectors with one model for all services, learned across episodes, and limits per episode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, RegisteredBaseline, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.features.held_out import divide_by_limits
from faultset.baselines.features.role_streams import RoleVectors, healthy_sequences, read_role_vectors
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

MAX_ROWS = 200_000
"""Approximate maximum number of training rows; with more rows, every k-th step is used."""
USUAL_SHARE = 0.95
_MAX_EVIDENCE = 3

DEPARTURES = (
    "One model is learned from all services of healthy training episodes and references; its input is log(1 + largest "
    "|z|) of each role of a service, relative to the episode's reference.",
    "A service's limit is its largest score in the episode's reference, and at least the 95 % quantile of the training "
    "rows; a sample has the score of its worst service.",
)


class PooledDetector(RegisteredBaseline):
    """Base class of detectors with a model of the healthy role vectors of services."""

    history = 0
    """Number of earlier steps that a score needs."""

    def __init__(self) -> None:
        self.model_: Any = None
        self.usual_ = 0.0

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn from all services of healthy episodes; if there are none, `detect` raises no alarm."""
        sequences = [sequence for sequence in healthy_sequences(healthy) if len(sequence) > self.history]
        self.model_ = None
        if sequences:
            self.model_ = self._learn(sequences)
            scores = np.concatenate([self._scores(sequence) for sequence in sequences])
            self.usual_ = float(np.quantile(scores, USUAL_SHARE))
        return self

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the largest ratio of a service's score to its limit."""
        vectors = read_role_vectors(episode)
        if self.model_ is None or vectors is None or vectors.windows.empty or vectors.healthy <= self.history + 1:
            return Detection.silent(1.0)
        scores = self._scores_of_services(vectors.vectors)
        first = vectors.healthy - self.history
        shares, limit = divide_by_limits(scores[:first], scores[first:], max(self.usual_, 1e-9))
        return self._detection(vectors, shares, limit)

    def _scores_of_services(self, vectors: Matrix) -> Matrix:
        """Return the scores [T - history, S] of vectors [T, S, R]."""
        if self.history == 0:
            # Steps are independent, so one call scores all services.
            return self._scores(vectors.reshape(-1, vectors.shape[2])).reshape(vectors.shape[:2])
        return np.stack([self._scores(vectors[:, service]) for service in range(vectors.shape[1])], axis=1)

    def _learn(self, sequences: Sequence[Matrix]) -> Any:
        """Return a model of sequences [steps, R], one per service and episode."""
        raise NotImplementedError

    def _scores(self, sequence: Matrix) -> Matrix:
        """Return a non-negative score of each step of a sequence after the first `history`."""
        raise NotImplementedError

    def _detection(self, role_vectors: RoleVectors, shares: Matrix, limit: float) -> Detection:
        times, worst = role_vectors.windows.times_ns, shares.max(axis=1)
        alarm = first_alarm(times, worst > limit)
        evidence: list[Evidence] = []
        if alarm is not None:
            row = int(np.searchsorted(times, alarm))
            for service in np.argsort(-shares[row], kind="stable")[:_MAX_EVIDENCE].tolist():
                name, score = role_vectors.services[service], float(shares[row, service])
                evidence.append(Evidence(service=name, subject="all roles", score=score, detail="times its limit"))
        return Detection.from_scores(times, worst, limit, evidence=evidence)


def thin(sequences: Sequence[Matrix], max_steps: int) -> Matrix:
    """Return every k-th step of each sequence, about `max_steps` in total."""
    step = -(-sum(map(len, sequences)) // max_steps)
    return np.concatenate([sequence[::step] for sequence in sequences])


def stack_past(sequence: Matrix, steps: int) -> Matrix:
    """Return the previous `steps` steps of each step, as [len - steps, R, steps]; the first `steps` have none."""
    return np.lib.stride_tricks.sliding_window_view(sequence[:-1], steps, axis=0)


@baseline(
    "forecast-residual",
    title="Forecast residual (ridge VAR)",
    task="detection",
    paper="Lütkepohl, New Introduction to Multiple Time Series Analysis, 2005; Hoerl, Kennard, Technometrics 1970",
    kind="method",
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + V·T·p·R²), p lags",
    departures=(
        *DEPARTURES,
        "Residuals are scaled by their standard deviations in training, not by their covariance.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class ForecastResidual(PooledDetector):
    """Detect vectors that a vector autoregression of healthy vectors does not predict.

    Parameters
    ----------
    lags
        Number of steps that a forecast uses.
    ridge
        Weight of the penalty per training row.

    References
    ----------
    Lütkepohl, New Introduction to Multiple Time Series Analysis, 2005; Hoerl, Kennard, Ridge Regression: Biased
    Estimation for Nonorthogonal Problems, Technometrics 1970.
    """

    def __init__(self, *, lags: int = 3, ridge: float = 0.01) -> None:
        super().__init__()
        self.lags, self.ridge = lags, ridge
        self.history = lags

    def _learn(self, sequences: Sequence[Matrix]) -> tuple[Matrix, Matrix]:
        pasts = thin([self._stack_lags(sequence) for sequence in sequences], MAX_ROWS)
        nexts = thin([sequence[self.lags :] for sequence in sequences], MAX_ROWS)
        penalty = self.ridge * len(pasts) * np.eye(pasts.shape[1])
        penalty[-1, -1] = 0.0
        weights = np.asarray(np.linalg.lstsq(pasts.T @ pasts + penalty, pasts.T @ nexts, rcond=None)[0], dtype=float)
        return weights, np.maximum((nexts - pasts @ weights).std(axis=0), 1e-3)

    def _stack_lags(self, sequence: Matrix) -> Matrix:
        """Return the previous `lags` steps of each step and a constant, as [steps - lags, lags · R + 1]."""
        past = stack_past(sequence, self.lags)
        return np.hstack([past.reshape(len(past), -1), np.ones((len(past), 1))])

    def _scores(self, sequence: Matrix) -> Matrix:
        weights, scale = self.model_
        return np.linalg.norm((sequence[self.lags :] - self._stack_lags(sequence) @ weights) / scale, axis=1)


_CHUNK = 2048


@baseline(
    "pooled-isolation-forest",
    title="Isolation forest, learned across episodes",
    task="detection",
    paper="Liu, Ting, Zhou, ICDM 2008",
    kind="method",
    tables=("metrics",),
    stochastic=True,
    speed="fast",
    complexity="O(S·T + trees·V·T·log n)",
    departures=DEPARTURES,
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class PooledIsolationForest(PooledDetector):
    """Detect vectors that few random splits isolate from healthy vectors.

    Parameters
    ----------
    trees
        Number of trees.
    seed
        Seed of the splits.

    References
    ----------
    Liu, Ting, Zhou, Isolation Forest, ICDM 2008.
    """

    def __init__(self, *, trees: int = 50, seed: int = 0) -> None:
        super().__init__()
        self.trees, self.seed = trees, seed

    def _learn(self, sequences: Sequence[Matrix]) -> Any:
        from sklearn.ensemble import IsolationForest

        return IsolationForest(n_estimators=self.trees, random_state=self.seed).fit(thin(sequences, MAX_ROWS))

    def _scores(self, sequence: Matrix) -> Matrix:
        return -self.model_.score_samples(sequence)


@baseline(
    "nearest-window",
    title="Nearest training window",
    task="detection",
    paper="Keogh, Lin, Fu, HOT SAX, ICDM 2005; Yeh et al., ICDM 2016",
    kind="method",
    tables=("metrics",),
    speed="fast",
    complexity="O(S·T + V·T·k·m·R), k stored windows of m steps",
    departures=(
        *DEPARTURES,
        "The distance is to a limited number of windows of other episodes, and is not normalised.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class NearestWindow(PooledDetector):
    """Detect windows that are unlike all training windows.

    Parameters
    ----------
    length
        Number of steps in a window.
    kept
        Maximum number of training windows.

    References
    ----------
    Keogh, Lin, Fu, HOT SAX: Efficiently Finding the Most Unusual Time Series Subsequence, ICDM 2005; Yeh et al.,
    Matrix Profile I: All Pairs Similarity Joins for Time Series, ICDM 2016.
    """

    def __init__(self, *, length: int = 5, kept: int = 1000) -> None:
        super().__init__()
        self.length, self.kept = length, kept
        self.history = length - 1

    def _learn(self, sequences: Sequence[Matrix]) -> Matrix:
        return thin([self._pieces(sequence) for sequence in sequences], self.kept)

    def _pieces(self, sequence: Matrix) -> Matrix:
        view = np.lib.stride_tricks.sliding_window_view(sequence, self.length, axis=0)
        return view.reshape(len(view), -1)

    def _scores(self, sequence: Matrix) -> Matrix:
        pieces, windows = self._pieces(sequence), self.model_
        sizes = (windows**2).sum(axis=1)
        parts = []
        for first in range(0, len(pieces), _CHUNK):
            chunk = pieces[first : first + _CHUNK]
            squared = (chunk**2).sum(axis=1)[:, None] + sizes - 2 * chunk @ windows.T
            parts.append(np.sqrt(np.maximum(squared.min(axis=1), 0.0)))
        return np.concatenate(parts)


_BATCH = 200
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class _Subspace:
    center: Matrix
    scale: Matrix
    axes: Matrix
    """[k, R]"""


@baseline(
    "pooled-pca",
    title="PCA reconstruction, learned across episodes",
    task="detection",
    paper="Lakhina, Crovella, Diot, SIGCOMM 2004",
    kind="method",
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + V·T·R²), R roles",
    departures=(
        *DEPARTURES,
        "The subspace keeps a share of the variance instead of the axes that pass a 3-sigma test.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class PooledPCA(PooledDetector):
    """Detect vectors far from the principal subspace of the healthy vectors.

    Parameters
    ----------
    variance
        Share of the healthy variance in the subspace.

    References
    ----------
    Lakhina, Crovella, Diot, Diagnosing Network-Wide Traffic Anomalies, SIGCOMM 2004.
    """

    def __init__(self, *, variance: float = 0.9) -> None:
        super().__init__()
        self.variance = variance

    def _learn(self, sequences: Sequence[Matrix]) -> _Subspace:
        rows = thin(sequences, MAX_ROWS)
        center, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
        values, vectors = np.linalg.eigh(np.cov((rows - center) / scale, rowvar=False))
        share = np.cumsum(values[::-1]) / max(float(values.sum()), 1e-12)
        count = int(np.searchsorted(share, self.variance)) + 1
        return _Subspace(center=center, scale=scale, axes=vectors[:, ::-1][:, :count].T.copy())

    def _scores(self, sequence: Matrix) -> Matrix:
        model: _Subspace = self.model_
        deviation = (sequence - model.center) / model.scale
        rest = np.linalg.norm(deviation - (deviation @ model.axes.T) @ model.axes, axis=1)
        # Ignore rounding errors of vectors within the subspace.
        return np.where(rest > ROUNDING * np.linalg.norm(deviation, axis=1), rest, 0.0)


@baseline(
    "autoencoder",
    title="MLP autoencoder",
    task="detection",
    paper="Sakurada, Yairi, MLSDA 2014",
    kind="method",
    tables=("metrics",),
    stochastic=True,
    speed="instant",
    complexity="O(S·T + V·T·R·h), h hidden units; a fit O(updates·R·h)",
    departures=(
        *DEPARTURES,
        "The network is trained by Adam for a fixed number of updates, without early stopping.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class Autoencoder(PooledDetector):
    """Detect vectors that a narrow autoencoder of healthy vectors does not reconstruct.

    Parameters
    ----------
    hidden
        Units of each hidden layer; the narrowest layer is the code.
    updates
        Number of optimizer steps, each on 200 rows; rounded up to whole passes over the training rows.
    seed
        Seed of the weights and of the order of rows.

    References
    ----------
    Sakurada, Yairi, Anomaly Detection Using Autoencoders with Nonlinear Dimensionality Reduction, MLSDA 2014.
    """

    def __init__(self, *, hidden: tuple[int, ...] = (16, 4, 16), updates: int = 500, seed: int = 0) -> None:
        super().__init__()
        self.hidden, self.updates, self.seed = hidden, updates, seed

    def _learn(self, sequences: Sequence[Matrix]) -> list[tuple[Matrix, Matrix]]:
        from sklearn.neural_network import MLPRegressor

        rows = thin(sequences, MAX_ROWS)
        batch: Any = min(_BATCH, len(rows))
        network = MLPRegressor(
            hidden_layer_sizes=self.hidden,
            activation="tanh",
            learning_rate_init=1e-2,
            batch_size=batch,
            random_state=self.seed,
        )
        for _ in range(math.ceil(self.updates / math.ceil(len(rows) / _BATCH))):
            network.partial_fit(rows, rows)
        return list(zip(network.coefs_, network.intercepts_, strict=True))

    def _scores(self, sequence: Matrix) -> Matrix:
        return _reconstruction_errors(sequence, self.model_)


@baseline(
    "untrained-autoencoder",
    title="Untrained autoencoder",
    task="detection",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    tables=("metrics",),
    stochastic=True,
    speed="instant",
    complexity="O(S·T + V·T·R·h), h hidden units",
    departures=DEPARTURES,
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class UntrainedAutoencoder(Autoencoder):
    """Control: the autoencoder with random weights.

    Its detections show how much the input alone reveals, because deviations are relative to the episode's reference.
    Limits are set as for the trained autoencoder.

    References
    ----------
    Kim, Choi, Choi, Lee, Yoon, Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022.
    """

    def _learn(self, sequences: Sequence[Matrix]) -> list[tuple[Matrix, Matrix]]:
        rng = np.random.default_rng(self.seed)
        widths = (sequences[0].shape[1], *self.hidden, sequences[0].shape[1])
        layers = []
        for inputs, outputs in itertools.pairwise(widths):
            bound = np.sqrt(6.0 / (inputs + outputs))
            layers.append((rng.uniform(-bound, bound, (inputs, outputs)), rng.uniform(-bound, bound, outputs)))
        return layers


def _reconstruction_errors(rows: Matrix, layers: Sequence[tuple[Matrix, Matrix]]) -> Matrix:
    output = rows
    for number, (weights, bias) in enumerate(layers):
        output = output @ weights + bias
        if number < len(layers) - 1:
            output = np.tanh(output)
    return np.linalg.norm(rows - output, axis=1)
