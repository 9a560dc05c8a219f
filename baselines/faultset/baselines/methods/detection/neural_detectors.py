"""Neural detectors of windows: LSTM autoencoder, USAD and TranAD."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.features.held_out import CLIP
from faultset.baselines.methods.detection.pooled_detectors import DEPARTURES as POOLED
from faultset.baselines.methods.detection.pooled_detectors import PooledDetector, thinned
from faultset.baselines.networks import (
    EXTRA,
    Loss,
    Parameters,
    attention,
    attention_parameters,
    dense,
    dense_parameters,
    lstm_last,
    lstm_parameters,
    lstm_step,
    normalized,
    sigmoid,
    trained,
)
from faultset.baselines.stats.scaling import Matrix

neural_detector = functools.partial(
    baseline,
    task="detection",
    stochastic=True,
    speed="fast",
    learns_from_references=True,
    developed_on=(SAMPLE,),
    extra=EXTRA,
)
"""`baseline` with what holds for every detector that trains a network on healthy telemetry of other episodes."""


WINDOW = 8
MOST_WINDOWS = 20_000
BATCH = 128
UPDATES = 400
DEPARTURES = (
    *POOLED,
    "Trained by Adam for a fixed number of updates; no score decides when it ends, and its limits are not those of the "
    "paper.",
)


class WindowDetector(PooledDetector):
    """A detector with a network that looks at the last `window` steps of a service and judges the last one.

    Parameters
    ----------
    updates
        Steps of the optimizer, each on 128 windows; 0 leaves the weights as they were drawn.
    hidden
        Width of the network.
    window
        Steps that are looked at together.
    seed
        Of the weights and of the order of the windows.
    """

    losses: Sequence[tuple[Loss, Sequence[str]]]
    """Losses with the parameters that each of them changes."""

    def __init__(self, *, updates: int = UPDATES, hidden: int = 16, window: int = WINDOW, seed: int = 0) -> None:
        super().__init__()
        self.updates, self.hidden, self.window, self.seed = updates, hidden, window, seed
        self.history = window - 1

    def _learned(self, sequences: Sequence[Matrix]) -> Any:
        windows = thinned([self._windows(one) for one in sequences], MOST_WINDOWS)
        parameters = self._initial(np.random.default_rng(self.seed), windows.shape[2])
        if self.updates:
            parameters = trained(parameters, self.losses, [windows], updates=self.updates, batch=BATCH, seed=self.seed)
        return self._model(parameters, windows)

    def _scores(self, sequence: Matrix) -> Matrix:
        return self._errors(self.model_, self._windows(sequence))

    def _windows(self, sequence: Matrix) -> Matrix:
        """[windows, window, R] between 0 and 1."""
        scaled = sequence / np.log1p(CLIP)
        return np.swapaxes(np.lib.stride_tricks.sliding_window_view(scaled, self.window, axis=0), 1, 2)

    def _initial(self, rng: np.random.Generator, roles: int) -> Parameters:
        raise NotImplementedError

    def _model(self, parameters: Parameters, windows: Matrix) -> Any:
        """Return what `_errors` needs; training windows are there for what else is estimated from them."""
        return parameters

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        """[windows] score of the last step of each."""
        raise NotImplementedError


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


TRANAD_EPOCHS = 10


def positions(length: int, width: int) -> Matrix:
    """[length, width] sines and cosines of Vaswani et al."""
    angle = np.arange(length)[:, None] / 10_000.0 ** (np.arange(width)[None, :] // 2 * 2 / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angle), np.cos(angle))


def shown(xp: Any, parameters: Parameters, windows: Any, focus: Any, decoder: str) -> Any:
    """[B, R] what a decoder makes of the newest step, given where to look."""
    length = windows.shape[1]
    tokens = dense(xp, parameters["input"], xp.concatenate([windows, focus], axis=-1))
    tokens = tokens + positions(length, tokens.shape[-1])
    seen = normalized(xp, tokens + attention(xp, parameters["context"], tokens, tokens))
    seen = normalized(xp, seen + dense(xp, parameters["feed"], seen))
    past = np.tril(np.ones((length, length), dtype=bool))
    attended = normalized(xp, tokens + attention(xp, parameters["window"], tokens, tokens, past))
    last = attended[:, -1:]
    joined = normalized(xp, last + attention(xp, parameters["cross"], last, seen))
    return sigmoid(xp, dense(xp, parameters[decoder], joined))[:, 0]


def phases(xp: Any, parameters: Parameters, windows: Any) -> tuple[Any, Any]:
    """[B, R] what both phases make of the newest step; the second is shown where the first was wrong."""
    first = shown(xp, parameters, windows, xp.zeros(windows.shape), "first")
    focus = (windows - first[:, None]) ** 2
    return first, shown(xp, parameters, windows, focus, "second")


def both_errors(xp: Any, parameters: Parameters, batch: tuple[Any, ...], done: Any) -> Any:
    """Squared errors of both phases, the second with more and more weight."""
    (windows,) = batch
    first, again = phases(xp, parameters, windows)
    last, share = windows[:, -1], 1.0 / (1.0 + xp.floor(TRANAD_EPOCHS * done))
    return share * ((first - last) ** 2).mean() + (1 - share) * ((again - last) ** 2).mean()


_PARTS = ("input", "context", "feed", "window", "cross", "first", "second")


@neural_detector(
    "tranad",
    title="TranAD",
    paper="Tuli, Casale, Jennings, VLDB 2022",
    kind="method",
    tables=("metrics",),
    complexity="O(S·T + V·T·w·h·(w + h)), w steps a window, h units; a fit O(updates·w·h·(w + h))",
    departures=(
        *DEPARTURES,
        "No meta learning and one attention head; the complete sequence is the window itself, and focus is a second "
        "input beside it.",
        "Both decoders are trained to be right, as in the authors' code; the second loss of the paper, by which the "
        "second decoder shall be wrong, is left out. The updates are divided into ten epochs, which weigh the errors.",
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
        Steps that are looked at together.
    seed
        Of the weights and of the order of the windows.

    References
    ----------
    Tuli, Casale, Jennings, TranAD: Deep Transformer Networks for Anomaly Detection in Multivariate Time Series Data,
    VLDB 2022.
    """

    losses: ClassVar[Any] = ((both_errors, _PARTS),)

    def _initial(self, rng: np.random.Generator, roles: int) -> Parameters:
        width = self.hidden
        return {
            "input": dense_parameters(rng, 2 * roles, width),
            "feed": dense_parameters(rng, width, 2 * width, width),
            **{name: attention_parameters(rng, width) for name in ("context", "window", "cross")},
            "first": dense_parameters(rng, width, width, roles),
            "second": dense_parameters(rng, width, width, roles),
        }

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        first, again = phases(np, model, windows)
        last = windows[:, -1]
        return 0.5 * ((first - last) ** 2).mean(axis=1) + 0.5 * ((again - last) ** 2).mean(axis=1)


USAD_EPOCHS = 3
ALPHA = 0.9
"""Share of the first autoencoder's error in the score; the paper tries 0 to 0.9."""


def passes(xp: Any, parameters: Parameters, windows: Any) -> tuple[Any, Any, Any, Any]:
    """[B, w·R] the input, what each autoencoder makes of it, and what the second makes of the first's."""
    flat = windows.reshape(windows.shape[0], -1)
    code = dense(xp, parameters["encoder"], flat)
    first = sigmoid(xp, dense(xp, parameters["first"], code))
    second = sigmoid(xp, dense(xp, parameters["second"], code))
    again = sigmoid(xp, dense(xp, parameters["second"], dense(xp, parameters["encoder"], first)))
    return flat, first, second, again


def first_loss(xp: Any, parameters: Parameters, batch: tuple[Any, ...], done: Any) -> Any:
    """Reconstruct, and more and more deceive the second autoencoder."""
    flat, first, _, again = passes(xp, parameters, batch[0])
    share = 1.0 / (1.0 + xp.floor(USAD_EPOCHS * done))
    return share * ((flat - first) ** 2).mean() + (1 - share) * ((flat - again) ** 2).mean()


def second_loss(xp: Any, parameters: Parameters, batch: tuple[Any, ...], done: Any) -> Any:
    """Reconstruct, and more and more tell the first autoencoder's output from data."""
    flat, _, second, again = passes(xp, parameters, batch[0])
    share = 1.0 / (1.0 + xp.floor(USAD_EPOCHS * done))
    return share * ((flat - second) ** 2).mean() - (1 - share) * ((flat - again) ** 2).mean()


@neural_detector(
    "usad",
    title="USAD",
    paper="Audibert, Michiardi, Guyard, Marti, Zuluaga, KDD 2020",
    kind="method",
    tables=("metrics",),
    complexity="O(S·T + V·T·w·R·h), w steps a window, h hidden units; a fit O(updates·w·R·h)",
    departures=(
        *DEPARTURES,
        "The updates are divided into three epochs of equal length, by which the losses are weighted: after ten the "
        "second autoencoder was wrong about everything alike.",
        "Layers are narrower, with tanh between them, and the score is of the whole window, as in the paper.",
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
        Steps that are looked at together.
    seed
        Of the weights and of the order of the windows.

    References
    ----------
    Audibert, Michiardi, Guyard, Marti, Zuluaga, USAD: UnSupervised Anomaly Detection on Multivariate Time Series,
    KDD 2020.
    """

    losses: ClassVar[Any] = ((first_loss, ("encoder", "first")), (second_loss, ("encoder", "second")))

    def _initial(self, rng: np.random.Generator, roles: int) -> Parameters:
        width, code = self.window * roles, max(1, self.hidden // 2)
        return {
            "encoder": dense_parameters(rng, width, self.hidden, code),
            "first": dense_parameters(rng, code, self.hidden, width),
            "second": dense_parameters(rng, code, self.hidden, width),
        }

    def _errors(self, model: Any, windows: Matrix) -> Matrix:
        flat, first, _, again = passes(np, model, windows)
        return ALPHA * ((flat - first) ** 2).mean(axis=1) + (1 - ALPHA) * ((flat - again) ** 2).mean(axis=1)
