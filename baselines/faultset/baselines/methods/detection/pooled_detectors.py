"""What detectors that learn across episodes share: one model of all services, and limits of the episode's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.features.held_out import own_limits
from faultset.baselines.features.role_streams import RoleVectors, healthy_sequences, role_vectors
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

MOST_ROWS = 200_000
"""Training rows, more or less; every k-th step is taken where there are more, so that a fit has a limit."""
USUAL_SHARE = 0.95
_MOST_EVIDENCE = 3

DEPARTURES = (
    "One model is learned from all services of all healthy training episodes, and of healthy references; its input is "
    "log(1 + largest |z|) of each role of a service, by the episode's own reference.",
    "A service's limit is the largest score that it has in the episode's own reference, which no model was fitted on, "
    "and at least what 95 % of the training rows stay below; an instant has the score of its worst service.",
)


class PooledDetector:
    """A detector with a model of what a service's vector of roles looks like while all is well."""

    name: str
    needs: frozenset[str]
    tables: tuple[str, ...]
    history = 0
    """Steps before one that are needed to score it."""

    def __init__(self) -> None:
        self.model_: Any = None
        self.usual_ = 0.0

    def fit(self, healthy: Sequence[EpisodeView]) -> Self:
        """Learn from all services of healthy episodes; without any, `detect` is silent."""
        sequences = [one for one in healthy_sequences(healthy) if len(one) > self.history]
        self.model_ = None
        if sequences:
            self.model_ = self._learned(sequences)
            scores = np.concatenate([self._scores(one) for one in sequences])
            self.usual_ = float(np.quantile(scores, USUAL_SHARE))
        return self

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its worst service, in units of that service's limit."""
        vectors = role_vectors(episode)
        if self.model_ is None or vectors is None or vectors.windows.empty or vectors.healthy <= self.history + 1:
            return Detection.silent(1.0)
        scores = self._scores_of_services(vectors.vectors)
        first = vectors.healthy - self.history
        shares, limit = own_limits(scores[:first], scores[first:], max(self.usual_, 1e-9))
        return self._detection(vectors, shares, limit)

    def _scores_of_services(self, vectors: Matrix) -> Matrix:
        """Return the scores [T - history, S] of vectors [T, S, R]."""
        if self.history == 0:
            # steps are scored one by one, so those of all services at once: a call costs more than its rows
            return self._scores(vectors.reshape(-1, vectors.shape[2])).reshape(vectors.shape[:2])
        return np.stack([self._scores(vectors[:, service]) for service in range(vectors.shape[1])], axis=1)

    def _learned(self, sequences: Sequence[Matrix]) -> Any:
        """Return a model of sequences [steps, R], each of one service."""
        raise NotImplementedError

    def _scores(self, sequence: Matrix) -> Matrix:
        """Return a score, not negative, for each step of a sequence but the first `history`."""
        raise NotImplementedError

    def _detection(self, found: RoleVectors, shares: Matrix, limit: float) -> Detection:
        times, worst = found.windows.times_ns, shares.max(axis=1)
        alarm = first_alarm(times, worst > limit)
        evidence: list[Evidence] = []
        if alarm is not None:
            row = int(np.searchsorted(times, alarm))
            for service in np.argsort(-shares[row], kind="stable")[:_MOST_EVIDENCE].tolist():
                name, score = found.services[service], float(shares[row, service])
                evidence.append(Evidence(service=name, subject="all roles", score=score, detail="times its limit"))
        return Detection.from_scores(times, worst, limit, evidence=evidence)


def pooled_rows(sequences: Sequence[Matrix]) -> Matrix:
    """Return the steps of all sequences as rows, about `MOST_ROWS` at most."""
    return thinned(sequences, MOST_ROWS)


def thinned(sequences: Sequence[Matrix], most: int) -> Matrix:
    """Return every k-th step of each sequence, so that about so many are left, whatever the order of the sequences."""
    step = -(-sum(map(len, sequences)) // most)
    return np.concatenate([sequence[::step] for sequence in sequences])


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
        "The residual is measured by the residuals' standard deviations in training, not by their covariance.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class ForecastResidual(PooledDetector):
    """Detect vectors that a vector autoregression, learned from healthy ones, did not foresee.

    Parameters
    ----------
    lags
        Steps that a forecast is made from.
    ridge
        Weight of the penalty, in units of the number of training rows.

    References
    ----------
    Lütkepohl, New Introduction to Multiple Time Series Analysis, 2005; Hoerl, Kennard, Ridge Regression: Biased
    Estimation for Nonorthogonal Problems, Technometrics 1970.
    """

    def __init__(self, *, lags: int = 3, ridge: float = 0.01) -> None:
        super().__init__()
        self.lags, self.ridge = lags, ridge
        self.history = lags

    def _learned(self, sequences: Sequence[Matrix]) -> tuple[Matrix, Matrix]:
        pasts = thinned([self._past(one) for one in sequences], MOST_ROWS)
        nexts = thinned([one[self.lags :] for one in sequences], MOST_ROWS)
        penalty = self.ridge * len(pasts) * np.eye(pasts.shape[1])
        penalty[-1, -1] = 0.0
        weights = np.asarray(np.linalg.lstsq(pasts.T @ pasts + penalty, pasts.T @ nexts, rcond=None)[0], dtype=float)
        return weights, np.maximum((nexts - pasts @ weights).std(axis=0), 1e-3)

    def _past(self, sequence: Matrix) -> Matrix:
        """Return [steps - lags, lags · R + 1]: what was known before each step, and a constant."""
        view = np.lib.stride_tricks.sliding_window_view(sequence[:-1], self.lags, axis=0)
        return np.hstack([view.reshape(len(view), -1), np.ones((len(view), 1))])

    def _scores(self, sequence: Matrix) -> Matrix:
        weights, scale = self.model_
        return np.linalg.norm((sequence[self.lags :] - self._past(sequence) @ weights) / scale, axis=1)


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
    """Detect vectors that random splits of healthy ones isolate early.

    Parameters
    ----------
    trees
        In the forest.
    seed
        Of the splits.

    References
    ----------
    Liu, Ting, Zhou, Isolation Forest, ICDM 2008.
    """

    def __init__(self, *, trees: int = 50, seed: int = 0) -> None:
        super().__init__()
        self.trees, self.seed = trees, seed

    def _learned(self, sequences: Sequence[Matrix]) -> Any:
        from sklearn.ensemble import IsolationForest

        return IsolationForest(n_estimators=self.trees, random_state=self.seed).fit(pooled_rows(sequences))

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
    complexity="O(S·T + V·T·k·m·R), k kept windows of m steps",
    departures=(
        *DEPARTURES,
        "The distance is to windows of other episodes, at most a fixed number of them, and is not normalised.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class NearestWindow(PooledDetector):
    """Detect windows that no window of the training episodes resembles: their distance to the nearest, as a discord's.

    Parameters
    ----------
    length
        Steps in a window.
    kept
        Training windows to compare with.

    References
    ----------
    Keogh, Lin, Fu, HOT SAX: Efficiently Finding the Most Unusual Time Series Subsequence, ICDM 2005; Yeh et al.,
    Matrix Profile I: All Pairs Similarity Joins for Time Series, ICDM 2016.
    """

    def __init__(self, *, length: int = 5, kept: int = 1000) -> None:
        super().__init__()
        self.length, self.kept = length, kept
        self.history = length - 1

    def _learned(self, sequences: Sequence[Matrix]) -> Matrix:
        return thinned([self._pieces(one) for one in sequences], self.kept)

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
        "The subspace keeps a share of the variance instead of the axes that pass a test of three sigma.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class PooledPCA(PooledDetector):
    """Detect vectors that leave the principal subspace of the healthy ones.

    Parameters
    ----------
    variance
        Share of the healthy variance that the subspace keeps.

    References
    ----------
    Lakhina, Crovella, Diot, Diagnosing Network-Wide Traffic Anomalies, SIGCOMM 2004.
    """

    def __init__(self, *, variance: float = 0.9) -> None:
        super().__init__()
        self.variance = variance

    def _learned(self, sequences: Sequence[Matrix]) -> _Subspace:
        rows = pooled_rows(sequences)
        center, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
        values, vectors = np.linalg.eigh(np.cov((rows - center) / scale, rowvar=False))
        share = np.cumsum(values[::-1]) / max(float(values.sum()), 1e-12)
        count = int(np.searchsorted(share, self.variance)) + 1
        return _Subspace(center=center, scale=scale, axes=vectors[:, ::-1][:, :count].T.copy())

    def _scores(self, sequence: Matrix) -> Matrix:
        model: _Subspace = self.model_
        away = (sequence - model.center) / model.scale
        rest = np.linalg.norm(away - (away @ model.axes.T) @ model.axes, axis=1)
        # where the subspace holds everything, only rounding errors are left
        return np.where(rest > ROUNDING * np.linalg.norm(away, axis=1), rest, 0.0)


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
        "Trained by Adam for a fixed number of updates; no score decides when it ends.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class Autoencoder(PooledDetector):
    """Detect vectors that a narrow neural network, trained on healthy ones, cannot reproduce.

    Parameters
    ----------
    hidden
        Units of the hidden layers; the narrowest is the code.
    updates
        Steps of the optimizer at least, each on 200 rows; whole passes over the training rows are made.
    seed
        Of the weights and the order of the rows.

    References
    ----------
    Sakurada, Yairi, Anomaly Detection Using Autoencoders with Nonlinear Dimensionality Reduction, MLSDA 2014.
    """

    def __init__(self, *, hidden: tuple[int, ...] = (16, 4, 16), updates: int = 500, seed: int = 0) -> None:
        super().__init__()
        self.hidden, self.updates, self.seed = hidden, updates, seed

    def _learned(self, sequences: Sequence[Matrix]) -> list[tuple[Matrix, Matrix]]:
        from sklearn.neural_network import MLPRegressor

        rows = pooled_rows(sequences)
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
    """Control: the autoencoder with the weights that it would have begun its training with.

    What it finds was not learned: it is in the input, which measures every service by the episode's own reference. Its
    limits are set as those of the trained one.

    References
    ----------
    Kim, Choi, Choi, Lee, Yoon, Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022.
    """

    def _learned(self, sequences: Sequence[Matrix]) -> list[tuple[Matrix, Matrix]]:
        rng = np.random.default_rng(self.seed)
        widths = (sequences[0].shape[1], *self.hidden, sequences[0].shape[1])
        layers = []
        for inputs, outputs in itertools.pairwise(widths):
            bound = np.sqrt(6.0 / (inputs + outputs))
            layers.append((rng.uniform(-bound, bound, (inputs, outputs)), rng.uniform(-bound, bound, outputs)))
        return layers


def _reconstruction_errors(rows: Matrix, layers: Sequence[tuple[Matrix, Matrix]]) -> Matrix:
    shown = rows
    for number, (weights, bias) in enumerate(layers):
        shown = shown @ weights + bias
        if number < len(layers) - 1:
            shown = np.tanh(shown)
    return np.linalg.norm(rows - shown, axis=1)
