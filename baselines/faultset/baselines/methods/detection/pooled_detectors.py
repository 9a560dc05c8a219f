"""Detectors with one model for all services, learned across episodes, and limits per episode."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from faultset.baselines.contract import Detection, Evidence, RegisteredBaseline
from faultset.baselines.features.held_out import divide_by_limits
from faultset.baselines.features.metric_alarms import series_evidence
from faultset.baselines.features.role_streams import RoleVectors, healthy_sequences, read_role_vectors
from faultset.baselines.registry import SAMPLE, baseline
from faultset.baselines.stats.scaling import Matrix
from faultset.core.errors import UsageError
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


pooled_detector = functools.partial(
    baseline,
    task="detection",
    tables=("metrics",),
    speed="instant",
    learns_from_references=True,
    developed_on=(SAMPLE,),
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
        def explain(row: int) -> list[Evidence]:
            series = [(service, "all roles") for service in role_vectors.services]
            order = np.argsort(-shares[row], kind="stable")[:_MAX_EVIDENCE]
            return series_evidence(series, shares[row], order, "times its limit")

        return Detection.from_scores(role_vectors.windows.times_ns, shares.max(axis=1), limit, evidence=explain)


def thin(sequences: Sequence[Matrix], max_steps: int) -> Matrix:
    """Return every k-th step of each sequence, about `max_steps` in total."""
    step = -(-sum(map(len, sequences)) // max_steps)
    return np.concatenate([sequence[::step] for sequence in sequences])


def stack_past(sequence: Matrix, steps: int) -> Matrix:
    """Return the previous `steps` steps of each step, as [len - steps, R, steps]; the first `steps` have none."""
    return np.lib.stride_tricks.sliding_window_view(sequence[:-1], steps, axis=0)


@pooled_detector(
    "forecast-residual",
    title="Forecast residual (ridge VAR)",
    paper="Lütkepohl, New Introduction to Multiple Time Series Analysis, 2005; Hoerl, Kennard, Technometrics 1970",
    complexity="O(S·T + V·T·p·R²), p lags",
    departures=(
        *DEPARTURES,
        "Residuals are scaled by their standard deviations in training, not by their covariance.",
    ),
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


@pooled_detector(
    "pooled-isolation-forest",
    title="Isolation forest, learned across episodes",
    paper="Liu, Ting, Zhou, ICDM 2008",
    stochastic=True,
    speed="fast",
    complexity="O(S·T + trees·V·T·log n)",
    departures=DEPARTURES,
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


@pooled_detector(
    "nearest-window",
    title="Nearest training window",
    paper="Keogh, Lin, Fu, HOT SAX, ICDM 2005; Yeh et al., ICDM 2016",
    speed="fast",
    complexity="O(S·T + V·T·k·m·R), k stored windows of m steps",
    departures=(
        *DEPARTURES,
        "The distance is to a limited number of windows of other episodes, and is not normalised.",
    ),
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


@pooled_detector(
    "pooled-pca",
    title="PCA reconstruction, learned across episodes",
    paper="Lakhina, Crovella, Diot, SIGCOMM 2004",
    complexity="O(S·T + V·T·R²), R roles",
    departures=(
        *DEPARTURES,
        "The subspace keeps a share of the variance instead of the axes that pass a 3-sigma test.",
    ),
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
        residual = np.linalg.norm(deviation - (deviation @ model.axes.T) @ model.axes, axis=1)
        # Ignore rounding errors of vectors within the subspace.
        return np.where(residual > ROUNDING * np.linalg.norm(deviation, axis=1), residual, 0.0)


@pooled_detector(
    "autoencoder",
    title="MLP autoencoder",
    paper="Sakurada, Yairi, MLSDA 2014",
    stochastic=True,
    complexity="O(S·T + V·T·R·h), h hidden units; a fit O(updates·R·h)",
    departures=(
        *DEPARTURES,
        "The network is trained by Adam for a fixed number of updates, without early stopping.",
    ),
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


@pooled_detector(
    "untrained-autoencoder",
    title="Untrained autoencoder",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    stochastic=True,
    complexity="O(S·T + V·T·R·h), h hidden units",
    departures=DEPARTURES,
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


CONTEXT = 16
"""Number of earlier steps that a forecast uses."""
MAX_TRAINING_STEPS = 2_000
WEIGHTS = Path("share/faultset/forecaster")
"""Folder of the model in the Python environment, which methods may read."""
_FORECAST_BATCH = 4_096


@pooled_detector(
    "pretrained-forecast-residual",
    title="Forecast residual (Chronos)",
    paper="Ansari et al., Chronos: Learning the Language of Time Series, TMLR 2024",
    speed="slow",
    complexity="O(S·T·R) forecasts",
    departures=(
        *DEPARTURES,
        "Each role is forecast alone, one step ahead, from the 16 steps before it.",
    ),
    extra="forecasters",
)
class PretrainedForecastResidual(PooledDetector):
    """Detect vectors far from the median forecast of a pre-trained model.

    `forecast-residual` is the same detector with a ridge regression, which needs neither PyTorch nor weights.

    Parameters
    ----------
    weights
        Folder with `config.json` and the weights, relative to the Python environment.

    References
    ----------
    Ansari et al., Chronos: Learning the Language of Time Series, TMLR 2024.
    """

    history = CONTEXT

    def __init__(self, *, weights: str = str(WEIGHTS)) -> None:
        super().__init__()
        self.weights = weights

    def _learn(self, sequences: Sequence[Matrix]) -> Matrix:
        """Return the standard deviation of each role's residuals."""
        pasts = thin([stack_past(sequence, CONTEXT) for sequence in sequences], MAX_TRAINING_STEPS)
        nexts = thin([sequence[CONTEXT:] for sequence in sequences], MAX_TRAINING_STEPS)
        return np.maximum((nexts - self._forecast(pasts)).std(axis=0), 1e-3)

    def _scores(self, sequence: Matrix) -> Matrix:
        residuals = sequence[CONTEXT:] - self._forecast(stack_past(sequence, CONTEXT))
        return np.linalg.norm(residuals / self.model_, axis=1)

    def _forecast(self, pasts: Matrix) -> Matrix:
        """Return the forecasts [n, R] of the step after past steps [n, R, steps]."""
        return forecast_next(load_model(self.weights), pasts.reshape(-1, CONTEXT)).reshape(pasts.shape[:2])


@functools.cache
def load_model(weights: str) -> Any:
    """Load a model of the Chronos family onto the CPU.

    Raises
    ------
    UsageError
        The folder holds no model.
    """
    folder = Path(sys.prefix) / weights
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{folder} must hold a model of the Chronos family, but has no config.json; "
            "see docs/reference/baselines.md#learned-across-episodes, or use forecast-residual"
        )
    import torch  # pyright: ignore[reportMissingImports]
    from chronos import BaseChronosPipeline  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    return BaseChronosPipeline.from_pretrained(str(folder), device_map="cpu")


def forecast_next(model: Any, windows: Matrix) -> Matrix:
    """Return the median forecast [n] of the step after each window [n, steps]."""
    import torch  # pyright: ignore[reportMissingImports]

    forecasts: list[float] = []
    for start in range(0, len(windows), _FORECAST_BATCH):
        # Chronos-2 rejects a matrix, and returns a list of tensors instead of one
        batch = [torch.tensor(window, dtype=torch.float32) for window in windows[start : start + _FORECAST_BATCH]]
        quantiles, _ = model.predict_quantiles(batch, prediction_length=1, quantile_levels=[0.5])
        forecasts += [float(forecast.reshape(-1)[0]) for forecast in quantiles]
    return np.array(forecasts)
