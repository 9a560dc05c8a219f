"""Neural detectors on windows: LSTM autoencoder, TranAD and USAD."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from faultset.baselines.features.held_out import CLIP
from faultset.baselines.methods.detection.pooled_detectors import DEPARTURES as POOLED
from faultset.baselines.methods.detection.pooled_detectors import PooledDetector, pooled_detector, thin
from faultset.baselines.networks import (
    EXTRA,
    Loss,
    Parameters,
    attention,
    attention_parameters,
    dense,
    dense_parameters,
    layer_norm,
    lstm_last,
    lstm_parameters,
    lstm_step,
    sigmoid,
    train,
)
from faultset.baselines.stats.scaling import Matrix

neural_detector = functools.partial(pooled_detector, stochastic=True, speed="fast", extra=EXTRA)
"""`baseline` with the common fields of detectors that train a network on healthy telemetry."""


WINDOW = 8
MAX_WINDOWS = 20_000
BATCH = 128
UPDATES = 400
DEPARTURES = (
    *POOLED,
    "The network is trained by Adam for a fixed number of updates without early stopping; limits differ from the "
    "paper's.",
)


class WindowDetector(PooledDetector):
    """Base class of networks that score the last of `window` steps of a service.

    Parameters
    ----------
    updates
        Steps of the optimizer, each on 128 windows; 0 for random weights.
    hidden
        Width of the network.
    window
        Number of steps in a window.
    seed
        Seed of the weights and of the order of windows.
    """

    losses: Sequence[tuple[Loss, Sequence[str]]]
    """Losses, each with the parameters that it changes."""

    def __init__(self, *, updates: int = UPDATES, hidden: int = 16, window: int = WINDOW, seed: int = 0) -> None:
        super().__init__()
        self.updates, self.hidden, self.window, self.seed = updates, hidden, window, seed
        self.history = window - 1

    def _learn(self, sequences: Sequence[Matrix]) -> Any:
        windows = thin([self._windows(sequence) for sequence in sequences], MAX_WINDOWS)
        parameters = self._draw_parameters(np.random.default_rng(self.seed), windows.shape[2])
        if self.updates:
            parameters = train(parameters, self.losses, [windows], updates=self.updates, batch=BATCH, seed=self.seed)
        return self._build_model(parameters, windows)

    def _scores(self, sequence: Matrix) -> Matrix:
        return self._errors(self.model_, self._windows(sequence))

    def _windows(self, sequence: Matrix) -> Matrix:
        """Return windows [windows, window, R] scaled to 0 to 1."""
        scaled = sequence / np.log1p(CLIP)
        return np.swapaxes(np.lib.stride_tricks.sliding_window_view(scaled, self.window, axis=0), 1, 2)

    def _draw_parameters(self, rng: np.random.Generator, roles: int) -> Parameters:
        raise NotImplementedError

    def _build_model(self, parameters: Parameters, windows: Matrix) -> Any:
        """Return the model for `_errors`, with further estimates from the training windows."""
        return parameters

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        """Return the score of the last step of each window."""
        raise NotImplementedError


_RIDGE = 1e-4
_SHARED_DEPARTURES = (
    *DEPARTURES,
    "The decoder's input is its previous output, in training too; the score is the error of the newest step, by mean "
    "and covariance of the training windows, because there is no validation set.",
)


def reconstruct(xp: Any, parameters: Parameters, windows: Any) -> Any:
    """Return the decoder's output [B, L, R] in time order."""
    state = lstm_last(xp, parameters["encoder"], windows)
    outputs = []
    for _ in range(windows.shape[1]):
        outputs.append(dense(xp, parameters["output"], state[0]))
        state = lstm_step(xp, parameters["decoder"], outputs[-1], state)
    return xp.stack(outputs[::-1], axis=1)


def squared_error(xp: Any, parameters: Parameters, batch: tuple[Any, ...], _: Any) -> Any:
    """Return the mean squared error of the reconstruction."""
    (windows,) = batch
    return ((windows - reconstruct(xp, parameters, windows)) ** 2).mean()


@neural_detector(
    "lstm-autoencoder",
    title="LSTM autoencoder (EncDec-AD)",
    paper="Malhotra et al., ICML Anomaly Detection Workshop 2016",
    complexity="O(S·T + V·T·w·h·(R + h)), w steps a window, h hidden units; a fit O(updates·w·h·(R + h))",
    departures=_SHARED_DEPARTURES,
)
class LSTMAutoencoder(WindowDetector):
    """Detect steps that an LSTM autoencoder of healthy windows does not reproduce.

    Parameters
    ----------
    updates
        Steps of the optimizer; 0 for random weights.
    hidden
        Units of both cells.
    window
        Number of steps in a window.
    seed
        Seed of the weights and of the order of windows.

    References
    ----------
    Malhotra et al., LSTM-based Encoder-Decoder for Multi-sensor Anomaly Detection, 2016.
    """

    losses: ClassVar[Any] = ((squared_error, ("encoder", "decoder", "output")),)

    def _draw_parameters(self, rng: np.random.Generator, roles: int) -> Parameters:
        return {
            "encoder": lstm_parameters(rng, roles, self.hidden),
            "decoder": lstm_parameters(rng, roles, self.hidden),
            "output": dense_parameters(rng, self.hidden, roles),
        }

    def _build_model(self, parameters: Parameters, windows: Matrix) -> Any:
        errors = windows[:, -1] - reconstruct(np, parameters, windows)[:, -1]
        spread = np.atleast_2d(np.cov(errors, rowvar=False)) + _RIDGE * np.eye(errors.shape[1])
        return parameters, errors.mean(axis=0), np.linalg.inv(spread)

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        parameters, center, inverse = model
        deviation = windows[:, -1] - reconstruct(np, parameters, windows)[:, -1] - center
        return np.einsum("ij,jk,ik->i", deviation, inverse, deviation)


@neural_detector(
    "untrained-lstm-autoencoder",
    title="Untrained LSTM autoencoder",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    complexity="O(S·T + V·T·w·h·(R + h)), w steps a window, h hidden units",
    departures=_SHARED_DEPARTURES,
)
class UntrainedLSTMAutoencoder(LSTMAutoencoder):
    """Control: the LSTM autoencoder with its initial weights.

    The mean and covariance of the errors come from the training windows, as for the trained network.

    References
    ----------
    Kim, Choi, Choi, Lee, Yoon, Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022.
    """

    def __init__(self, *, hidden: int = 16, window: int = 8, seed: int = 0) -> None:
        super().__init__(updates=0, hidden=hidden, window=window, seed=seed)


TRANAD_EPOCHS = 10


def positions(length: int, width: int) -> Matrix:
    """Return the positional encoding [length, width] of Vaswani et al."""
    angle = np.arange(length)[:, None] / 10_000.0 ** (np.arange(width)[None, :] // 2 * 2 / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angle), np.cos(angle))


def decode_last(xp: Any, parameters: Parameters, windows: Any, focus: Any, decoder: str) -> Any:
    """Return a decoder's output [B, R] for the newest step, given a focus."""
    length = windows.shape[1]
    tokens = dense(xp, parameters["input"], xp.concatenate([windows, focus], axis=-1))
    tokens = tokens + positions(length, tokens.shape[-1])
    context = layer_norm(xp, tokens + attention(xp, parameters["context"], tokens, tokens))
    context = layer_norm(xp, context + dense(xp, parameters["feed"], context))
    past = np.tril(np.ones((length, length), dtype=bool))
    attended = layer_norm(xp, tokens + attention(xp, parameters["window"], tokens, tokens, past))
    last = attended[:, -1:]
    output = layer_norm(xp, last + attention(xp, parameters["cross"], last, context))
    return sigmoid(xp, dense(xp, parameters[decoder], output))[:, 0]


def run_phases(xp: Any, parameters: Parameters, windows: Any) -> tuple[Any, Any]:
    """Return the outputs [B, R] of both phases; the errors of the first are the focus of the second."""
    first = decode_last(xp, parameters, windows, xp.zeros(windows.shape), "first")
    focus = (windows - first[:, None]) ** 2
    return first, decode_last(xp, parameters, windows, focus, "second")


def both_errors(xp: Any, parameters: Parameters, batch: tuple[Any, ...], progress: Any) -> Any:
    """Return the weighted squared errors of both phases; the weight of the second grows during training."""
    (windows,) = batch
    first, second = run_phases(xp, parameters, windows)
    last, share = windows[:, -1], 1.0 / (1.0 + xp.floor(TRANAD_EPOCHS * progress))
    return share * ((first - last) ** 2).mean() + (1 - share) * ((second - last) ** 2).mean()


_PARTS = ("input", "context", "feed", "window", "cross", "first", "second")


@neural_detector(
    "tranad",
    title="TranAD",
    paper="Tuli, Casale, Jennings, VLDB 2022",
    complexity="O(S·T + V·T·w·h·(w + h)), w steps a window, h units; a fit O(updates·w·h·(w + h))",
    departures=(
        *DEPARTURES,
        "It has one attention head and no meta learning; the window is the complete sequence, and the focus is "
        "an extra input.",
        "Both decoders minimise their error, as in the authors' code; the paper's adversarial second loss is left out. "
        "The updates are divided into ten epochs, which weight the errors.",
    ),
)
class TranAD(WindowDetector):
    """Detect steps that a transformer with self-conditioning does not reproduce.

    Parameters
    ----------
    updates
        Steps of the optimizer.
    hidden
        Width of a step within the transformer.
    window
        Number of steps in a window.
    seed
        Seed of the weights and of the order of windows.

    References
    ----------
    Tuli, Casale, Jennings, TranAD: Deep Transformer Networks for Anomaly Detection in Multivariate Time Series Data,
    VLDB 2022.
    """

    losses: ClassVar[Any] = ((both_errors, _PARTS),)

    def _draw_parameters(self, rng: np.random.Generator, roles: int) -> Parameters:
        width = self.hidden
        return {
            "input": dense_parameters(rng, 2 * roles, width),
            "feed": dense_parameters(rng, width, 2 * width, width),
            **{name: attention_parameters(rng, width) for name in ("context", "window", "cross")},
            "first": dense_parameters(rng, width, width, roles),
            "second": dense_parameters(rng, width, width, roles),
        }

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        first, second = run_phases(np, model, windows)
        last = windows[:, -1]
        return 0.5 * ((first - last) ** 2).mean(axis=1) + 0.5 * ((second - last) ** 2).mean(axis=1)


USAD_EPOCHS = 3
ALPHA = 0.9
"""Weight of the first autoencoder's error in the score; the paper tries 0 to 0.9."""


def autoencode(xp: Any, parameters: Parameters, windows: Any) -> tuple[Any, Any, Any, Any]:
    """Return the input [B, w·R], the output of each autoencoder, and the second's output for the first's output."""
    flat = windows.reshape(windows.shape[0], -1)
    code = dense(xp, parameters["encoder"], flat)
    first = sigmoid(xp, dense(xp, parameters["first"], code))
    second = sigmoid(xp, dense(xp, parameters["second"], code))
    chained = sigmoid(xp, dense(xp, parameters["second"], dense(xp, parameters["encoder"], first)))
    return flat, first, second, chained


def first_loss(xp: Any, parameters: Parameters, batch: tuple[Any, ...], progress: Any) -> Any:
    """Return the first autoencoder's loss: its error plus, with growing weight, the second's error on its output."""
    flat, first, _, chained = autoencode(xp, parameters, batch[0])
    share = 1.0 / (1.0 + xp.floor(USAD_EPOCHS * progress))
    return share * ((flat - first) ** 2).mean() + (1 - share) * ((flat - chained) ** 2).mean()


def second_loss(xp: Any, parameters: Parameters, batch: tuple[Any, ...], progress: Any) -> Any:
    """Return the second autoencoder's loss: its error minus, with growing weight, its error on the first's output."""
    flat, _, second, chained = autoencode(xp, parameters, batch[0])
    share = 1.0 / (1.0 + xp.floor(USAD_EPOCHS * progress))
    return share * ((flat - second) ** 2).mean() - (1 - share) * ((flat - chained) ** 2).mean()


@neural_detector(
    "usad",
    title="USAD",
    paper="Audibert, Michiardi, Guyard, Marti, Zuluaga, KDD 2020",
    complexity="O(S·T + V·T·w·R·h), w steps a window, h hidden units; a fit O(updates·w·R·h)",
    departures=(
        *DEPARTURES,
        "The updates are divided into three epochs, which weight the losses: after ten epochs the second autoencoder "
        "had equal errors everywhere.",
        "Layers are narrower, with tanh between them; the score covers the whole window, as in the paper.",
    ),
)
class USAD(WindowDetector):
    """Detect windows that adversarially trained autoencoders do not reproduce.

    Parameters
    ----------
    updates
        Steps of each of the two optimizers.
    hidden
        Units of the layers around the code, which has half as many.
    window
        Number of steps in a window.
    seed
        Seed of the weights and of the order of windows.

    References
    ----------
    Audibert, Michiardi, Guyard, Marti, Zuluaga, USAD: UnSupervised Anomaly Detection on Multivariate Time Series,
    KDD 2020.
    """

    losses: ClassVar[Any] = ((first_loss, ("encoder", "first")), (second_loss, ("encoder", "second")))

    def _draw_parameters(self, rng: np.random.Generator, roles: int) -> Parameters:
        width, code = self.window * roles, max(1, self.hidden // 2)
        return {
            "encoder": dense_parameters(rng, width, self.hidden, code),
            "first": dense_parameters(rng, code, self.hidden, width),
            "second": dense_parameters(rng, code, self.hidden, width),
        }

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        flat, first, _, chained = autoencode(np, model, windows)
        return ALPHA * ((flat - first) ** 2).mean(axis=1) + (1 - ALPHA) * ((flat - chained) ** 2).mean(axis=1)
