"""Detectors that ask how far a vector, or a window of them, lies from the healthy ones of other episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.methods.detection.pooled.pooled_detector import (
    DEPARTURES,
    PooledDetector,
    pooled_rows,
    thinned,
)
from faultset.baselines.stats.scaling import Matrix

_CHUNK = 2048


@baseline(
    "pooled-isolation-forest",
    title="Isolation forest, learned across episodes",
    task="detection",
    paper="Liu, Ting, Zhou, ICDM 2008",
    kind="method",
    tables=("metrics",),
    stochastic=True,
    speed="fast",
    complexity="O(S·T + trees·V·T·log n)",
    departures=DEPARTURES,
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class PooledIsolationForest(PooledDetector):
    """Detect vectors that random splits of healthy ones isolate early.

    Parameters
    ----------
    trees
        In the forest.
    seed
        Of the splits.

    References
    ----------
    Liu, Ting, Zhou, Isolation Forest, ICDM 2008.
    """

    def __init__(self, *, trees: int = 50, seed: int = 0) -> None:
        super().__init__()
        self.trees, self.seed = trees, seed

    def _learned(self, sequences: Sequence[Matrix]) -> Any:
        from sklearn.ensemble import IsolationForest

        return IsolationForest(n_estimators=self.trees, random_state=self.seed).fit(pooled_rows(sequences))

    def _scores(self, sequence: Matrix) -> Matrix:
        return -self.model_.score_samples(sequence)


@baseline(
    "nearest-window",
    title="Nearest training window",
    task="detection",
    paper="Keogh, Lin, Fu, HOT SAX, ICDM 2005; Yeh et al., ICDM 2016",
    kind="method",
    tables=("metrics",),
    speed="fast",
    complexity="O(S·T + V·T·k·m·R), k kept windows of m steps",
    departures=(
        *DEPARTURES,
        "The distance is to windows of other episodes, at most a fixed number of them, and is not normalised.",
    ),
    learns_from_references=True,
    developed_on=(SAMPLE,),
)
class NearestWindow(PooledDetector):
    """Detect windows that no window of the training episodes resembles: their distance to the nearest, as a discord's.

    Parameters
    ----------
    length
        Steps in a window.
    kept
        Training windows to compare with.

    References
    ----------
    Keogh, Lin, Fu, HOT SAX: Efficiently Finding the Most Unusual Time Series Subsequence, ICDM 2005; Yeh et al.,
    Matrix Profile I: All Pairs Similarity Joins for Time Series, ICDM 2016.
    """

    def __init__(self, *, length: int = 5, kept: int = 1000) -> None:
        super().__init__()
        self.length, self.kept = length, kept
        self.history = length - 1

    def _learned(self, sequences: Sequence[Matrix]) -> Matrix:
        return thinned([self._pieces(one) for one in sequences], self.kept)

    def _pieces(self, sequence: Matrix) -> Matrix:
        view = np.lib.stride_tricks.sliding_window_view(sequence, self.length, axis=0)
        return view.reshape(len(view), -1)

    def _scores(self, sequence: Matrix) -> Matrix:
        pieces, known = self._pieces(sequence), self.model_
        sizes = (known**2).sum(axis=1)
        parts = []
        for first in range(0, len(pieces), _CHUNK):
            part = pieces[first : first + _CHUNK]
            squared = (part**2).sum(axis=1)[:, None] + sizes - 2 * part @ known.T
            parts.append(np.sqrt(np.maximum(squared.min(axis=1), 0.0)))
        return np.concatenate(parts)
