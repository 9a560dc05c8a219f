"""A detector that asks how far the next vector is from its forecast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.methods.detection.pooled.pooled_detector import (
    DEPARTURES,
    MOST_ROWS,
    PooledDetector,
    thinned,
)
from faultset.baselines.stats.scaling import Matrix


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
