"""Compare a detector on a pre-trained forecaster with the ridge regression of `forecast-residual`.

    pip install chronos-forecasting
    python benchmarks/external/pretrained_forecaster.py DATASET WEIGHTS [--out FOLDER]

WEIGHTS is a folder with a model of the Chronos family: `config.json` and its weights. It must be inside the folder of
the Python environment, because methods can read no other folder. The forecast of a series is the median for the next
step, given the 16 steps before it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from faultset.baselines.api.registry import baseline, get_baseline
from faultset.baselines.methods.detection.pooled_detectors import PooledDetector
from faultset.baselines.stats.scaling import Matrix
from faultset.core.command_line.progress import report_progress
from faultset.core.errors import UsageError
from faultset.datasets import open_dataset
from faultset.evaluators import evaluate

CONTEXT = 16
MAX_WINDOWS = 2_000
COLUMNS = ["baseline", "timed_balanced_accuracy", "event_recall", "false_alarms_per_hour", "vus_pr"]


@baseline(
    "chronos-residual",
    title="Forecast residual (Chronos)",
    task="detection",
    paper="Ansari et al., Chronos: learning the language of time series, TMLR 2024",
    tables=("metrics",),
    speed="slow",
    learns_from_references=True,
)
class ChronosResidual(PooledDetector):
    """Detect vectors that a pre-trained forecaster does not predict; each role is forecast alone.

    Parameters
    ----------
    weights
        Folder of the model.
    """

    history = CONTEXT

    def __init__(self, *, weights: str) -> None:
        super().__init__()
        self.weights = weights

    def _learn(self, sequences: Sequence[Matrix]) -> Matrix:
        """Return the standard deviation of each role's residuals on about MAX_WINDOWS steps."""
        every = -(-sum(map(len, sequences)) // MAX_WINDOWS)
        return np.maximum(np.concatenate([self._residuals(rows, every) for rows in sequences]).std(axis=0), 1e-3)

    def _scores(self, sequence: Matrix) -> Matrix:
        return np.linalg.norm(self._residuals(sequence) / self.model_, axis=1)

    def _residuals(self, sequence: Matrix, every: int = 1) -> Matrix:
        windows = np.lib.stride_tricks.sliding_window_view(sequence[:-1], CONTEXT, axis=0)[::every]
        forecasts = forecast_next(load_pipeline(self.weights), windows.reshape(-1, CONTEXT))
        return sequence[CONTEXT:][::every] - forecasts.reshape(windows.shape[:2])


@functools.cache
def load_pipeline(weights: str) -> Any:
    """Load a model of the Chronos family onto the CPU.

    Raises
    ------
    UsageError
        The folder holds no model, or methods cannot read it.
    """
    folder = Path(weights).resolve()
    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder} must hold a model with a config.json, such as that of amazon/chronos-bolt-tiny")
    if not folder.is_relative_to(Path(sys.prefix).resolve()):
        raise UsageError(f"{folder} must be inside {sys.prefix}, the Python environment; move the model there")
    from chronos import BaseChronosPipeline  # pyright: ignore[reportMissingImports]

    return BaseChronosPipeline.from_pretrained(str(folder), device_map="cpu")


def forecast_next(pipeline: Any, windows: Matrix) -> Matrix:
    """Return the median forecast [n] of the step after each window [n, steps]."""
    import torch  # pyright: ignore[reportMissingImports]

    contexts = torch.tensor(np.ascontiguousarray(windows), dtype=torch.float32)
    quantiles, _ = pipeline.predict_quantiles(contexts, prediction_length=1, quantile_levels=[0.5])
    return np.array([float(forecast.reshape(-1)[0]) for forecast in quantiles])


@click.command()
@click.argument("dataset")
@click.argument("weights")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the evaluation; an interrupted one is resumed.")
def main(dataset: str, weights: str, out: Path | None) -> None:
    """Print the figures of both detectors."""
    try:
        load_pipeline(weights)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    spec: Any = get_baseline("chronos-residual")
    chronos = replace(spec, factory=functools.partial(ChronosResidual, weights=weights))
    with report_progress("evaluating") as progress:
        done = evaluate(
            open_dataset(dataset), [chronos, "forecast-residual"], tasks=["detection"], out=out, progress=progress
        )
    frame = done.leaderboard(intervals=False)
    click.echo(frame[[name for name in COLUMNS if name in frame]].to_string(index=False))


if __name__ == "__main__":
    main()
