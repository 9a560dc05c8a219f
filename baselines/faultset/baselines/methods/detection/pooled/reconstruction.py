"""Detectors that ask how badly a model that learned healthy vectors reconstructs one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.methods.detection.pooled.pooled_detector import DEPARTURES, PooledDetector, pooled_rows
from faultset.baselines.stats.scaling import Matrix

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
        kept = int(np.searchsorted(share, self.variance)) + 1
        return _Subspace(center=center, scale=scale, axes=vectors[:, ::-1][:, :kept].T.copy())

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
