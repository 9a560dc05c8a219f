"""USAD: two autoencoders with one encoder, of which the second learns to tell data from what the first makes of it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from faultset.baselines.methods.detection.neural.registration import neural_detector
from faultset.baselines.methods.detection.neural.window_detector import DEPARTURES, WindowDetector
from faultset.baselines.neural.networks import Parameters, dense, dense_parameters, sigmoid
from faultset.baselines.stats.scaling import Matrix

EPOCHS = 3
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
    share = 1.0 / (1.0 + xp.floor(EPOCHS * done))
    return share * ((flat - first) ** 2).mean() + (1 - share) * ((flat - again) ** 2).mean()


def second_loss(xp: Any, parameters: Parameters, batch: tuple[Any, ...], done: Any) -> Any:
    """Reconstruct, and more and more tell the first autoencoder's output from data."""
    flat, _, second, again = passes(xp, parameters, batch[0])
    share = 1.0 / (1.0 + xp.floor(EPOCHS * done))
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
