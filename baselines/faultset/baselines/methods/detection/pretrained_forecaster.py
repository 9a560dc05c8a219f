"""A detector that compares samples with the forecasts of a pre-trained model of the Chronos family."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.methods.detection.pooled_detectors import DEPARTURES, PooledDetector, stack_past, thin
from faultset.baselines.stats.scaling import Matrix
from faultset.core.errors import UsageError

CONTEXT = 16
"""Number of earlier steps that a forecast uses."""
MAX_TRAINING_STEPS = 2_000
WEIGHTS = Path("share/faultset/forecaster")
"""Folder of the model in the Python environment, which methods may read."""
_BATCH = 4_096


@baseline(
    "pretrained-forecast-residual",
    title="Forecast residual (Chronos)",
    task="detection",
    paper="Ansari et al., Chronos: Learning the Language of Time Series, TMLR 2024",
    tables=("metrics",),
    speed="slow",
    complexity="O(S·T·R) forecasts",
    departures=(
        *DEPARTURES,
        "Each role is forecast alone, one step ahead, from the 16 steps before it.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
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
        """Return the forecasts [n, R] after past steps [n, R, steps]."""
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
    for start in range(0, len(windows), _BATCH):
        # Chronos-2 refuses a matrix, and returns a list of tensors instead of one
        batch = [torch.tensor(window, dtype=torch.float32) for window in windows[start : start + _BATCH]]
        quantiles, _ = model.predict_quantiles(batch, prediction_length=1, quantile_levels=[0.5])
        forecasts += [float(forecast.reshape(-1)[0]) for forecast in quantiles]
    return np.array(forecasts)
