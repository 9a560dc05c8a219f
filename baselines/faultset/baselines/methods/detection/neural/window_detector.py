"""What networks on windows of role vectors share: windows of all services as one training set, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from faultset.baselines.features.held_out import CLIP
from faultset.baselines.methods.detection.pooled.pooled_detector import DEPARTURES as POOLED
from faultset.baselines.methods.detection.pooled.pooled_detector import PooledDetector, thinned
from faultset.baselines.neural.networks import Parameters
from faultset.baselines.neural.training import Loss, trained
from faultset.baselines.stats.scaling import Matrix

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
