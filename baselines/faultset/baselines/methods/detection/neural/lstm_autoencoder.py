"""LSTM autoencoder: a sequence is put into one vector and read out of it again, backwards."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from faultset.baselines.methods.detection.neural.registration import neural_detector
from faultset.baselines.methods.detection.neural.window_detector import DEPARTURES, WindowDetector
from faultset.baselines.neural.networks import (
    Parameters,
    dense,
    dense_parameters,
    lstm_last,
    lstm_parameters,
    lstm_step,
)
from faultset.baselines.stats.scaling import Matrix

_RIDGE = 1e-4
_SHARED = (
    *DEPARTURES,
    "The decoder is given its own output in training too; the score is the error of the newest step alone, by mean and "
    "covariance of the training windows, since no sequences are kept apart to estimate them.",
)


def reconstructed(xp: Any, parameters: Parameters, windows: Any) -> Any:
    """[B, L, R] what the decoder reads out, in order of time."""
    state = lstm_last(xp, parameters["encoder"], windows)
    shown = []
    for _ in range(windows.shape[1]):
        shown.append(dense(xp, parameters["output"], state[0]))
        state = lstm_step(xp, parameters["decoder"], shown[-1], state)
    return xp.stack(shown[::-1], axis=1)


def squared_error(xp: Any, parameters: Parameters, batch: tuple[Any, ...], _: Any) -> Any:
    """Mean squared error of the reconstruction."""
    (windows,) = batch
    return ((windows - reconstructed(xp, parameters, windows)) ** 2).mean()


@neural_detector(
    "lstm-autoencoder",
    title="LSTM autoencoder (EncDec-AD)",
    paper="Malhotra et al., ICML Anomaly Detection Workshop 2016",
    kind="method",
    tables=("metrics",),
    complexity="O(S·T + V·T·w·h·(R + h)), w steps a window, h hidden units; a fit O(updates·w·h·(R + h))",
    departures=_SHARED,
)
class LSTMAutoencoder(WindowDetector):
    """Detect steps that an LSTM, trained on healthy windows, does not reproduce from its code.

    Parameters
    ----------
    updates
        Steps of the optimizer; 0 leaves the weights as they were drawn.
    hidden
        Units of both cells.
    window
        Steps that are looked at together.
    seed
        Of the weights and of the order of the windows.

    References
    ----------
    Malhotra et al., LSTM-based Encoder-Decoder for Multi-sensor Anomaly Detection, 2016.
    """

    losses: ClassVar[Any] = ((squared_error, ("encoder", "decoder", "output")),)

    def _initial(self, rng: np.random.Generator, roles: int) -> Parameters:
        return {
            "encoder": lstm_parameters(rng, roles, self.hidden),
            "decoder": lstm_parameters(rng, roles, self.hidden),
            "output": dense_parameters(rng, self.hidden, roles),
        }

    def _model(self, parameters: Parameters, windows: Matrix) -> Any:
        errors = windows[:, -1] - reconstructed(np, parameters, windows)[:, -1]
        spread = np.atleast_2d(np.cov(errors, rowvar=False)) + _RIDGE * np.eye(errors.shape[1])
        return parameters, errors.mean(axis=0), np.linalg.inv(spread)

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        parameters, center, inverse = model
        away = windows[:, -1] - reconstructed(np, parameters, windows)[:, -1] - center
        return np.einsum("ij,jk,ik->i", away, inverse, away)


@neural_detector(
    "untrained-lstm-autoencoder",
    title="Untrained LSTM autoencoder",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    tables=("metrics",),
    complexity="O(S·T + V·T·w·h·(R + h)), w steps a window, h hidden units",
    departures=_SHARED,
)
class UntrainedLSTMAutoencoder(LSTMAutoencoder):
    """Control for networks on windows: the LSTM autoencoder with the weights that its training would begin with.

    Mean and covariance of its errors are those of the training windows, as for the trained one.

    References
    ----------
    Kim, Choi, Choi, Lee, Yoon, Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022.
    """

    def __init__(self, *, hidden: int = 16, window: int = 8, seed: int = 0) -> None:
        super().__init__(updates=0, hidden=hidden, window=window, seed=seed)
