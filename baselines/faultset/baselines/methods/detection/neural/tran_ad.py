"""TranAD: a transformer that looks at a window twice, the second time at where it was wrong the first time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from faultset.baselines.methods.detection.neural.registration import neural_detector
from faultset.baselines.methods.detection.neural.window_detector import DEPARTURES, WindowDetector
from faultset.baselines.neural.networks import (
    Parameters,
    attention,
    attention_parameters,
    dense,
    dense_parameters,
    normalized,
    sigmoid,
)
from faultset.baselines.stats.scaling import Matrix

EPOCHS = 10


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
    own = normalized(xp, tokens + attention(xp, parameters["window"], tokens, tokens, past))
    last = own[:, -1:]
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
    last, share = windows[:, -1], 1.0 / (1.0 + xp.floor(EPOCHS * done))
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
