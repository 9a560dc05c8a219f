"""Deviations of an episode with a held-out reference, and the limits that follow from them.

A model gives lower scores to the samples that it was fitted to than to new samples. So each block of the reference is
standardised and scored by a model of the other blocks. The largest of these scores is a fair limit for later samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from faultset.baselines.contract import CONSECUTIVE, Detection, TrainingFreeBaseline
from faultset.baselines.features.metric_alarms import largest_deviations
from faultset.baselines.features.windows import Windows, detection_windows, measure_deviations
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, reference_limit, with_metric_floor
from faultset.datasets.views import EpisodeView

FOLDS = 4
MIN_SAMPLES = 2 * FOLDS
CLIP = 100.0
Rows = npt.NDArray[np.intp]
Score = Callable[[Matrix, Matrix], Matrix]
"""(normal rows [n, p], test rows [t, p]) -> score of each test row, higher is worse."""


def split_folds(samples: int, count: int = FOLDS) -> list[tuple[Rows, Rows]]:
    """Split samples into consecutive blocks; return (rest, block) for each."""
    all_rows = np.arange(samples)
    return [(np.setdiff1d(all_rows, block), block) for block in np.array_split(all_rows, count)]


def hold_out_deviations(reference: Matrix, series: Sequence[tuple[str, str]]) -> Matrix:
    """Return the signed z of each reference sample, from the mean and standard deviation of the other blocks."""
    z = np.zeros(reference.shape)
    for rest, block in split_folds(len(reference)):
        mean, sd = mean_and_sd(reference[rest])
        z[block] = deviations(reference[block], mean, with_metric_floor(sd, series))
    return np.clip(z, -CLIP, CLIP)


def hold_out_scores(normal: Matrix, score: Score, count: int = FOLDS) -> Matrix:
    """Return the score of each normal row by a model of the other blocks."""
    scores = np.zeros(len(normal))
    for rest, block in split_folds(len(normal), count):
        scores[block] = score(normal[rest], normal[block])
    return scores


def divide_by_limits(normal: Matrix, values: Matrix, minimum: float) -> tuple[Matrix, float]:
    """Divide the deviations of each column by its largest deviation in the reference.

    Parameters
    ----------
    normal, values
        [n, p] and [T, p], not negative.
    minimum
        Smallest limit of a column.

    Returns
    -------
    shares
        [T, p]; 1 is the column's limit.
    limit
        Limit for the largest share of a sample, at least 1. It comes from the shares of each reference block relative
        to the other blocks.
    """
    held_out = np.zeros(len(normal))
    for rest, block in split_folds(len(normal)):
        held_out[block] = (normal[block] / normal[rest].max(axis=0, initial=minimum)).max(axis=1, initial=0.0)
    return values / normal.max(axis=0, initial=minimum), reference_limit(held_out, minimum=1.0)


def remove_spikes(z: Matrix) -> Matrix:
    """Limit each deviation to the size of the previous one.

    >>> remove_spikes(np.array([[1.0], [4.0], [-3.0], [-0.5]])).ravel().tolist()
    [0.0, 1.0, -3.0, -0.5]
    """
    previous = np.vstack([np.zeros((1, z.shape[1])), z[:-1]])
    return np.sign(z) * np.minimum(np.abs(previous), np.abs(z))


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Metrics of an episode as deviations, clipped at 100."""

    windows: Windows
    normal: Matrix
    """[n, d] signed z of the reference, each block relative to the others."""
    z: Matrix
    """[T, d] signed z of the test window relative to the whole reference; 0 for gaps, 10 for stopped series."""

    @property
    def lasting(self) -> HeldOut:
        """Return the deviations without single-sample spikes, such as ticks of an idle counter."""
        z = remove_spikes(np.vstack([self.normal, self.z]))
        return replace(self, normal=z[: len(self.normal)], z=z[len(self.normal) :])

    def detection(
        self,
        scores: Matrix,
        threshold: float,
        *,
        by_series: Matrix | None = None,
        detail: str = "sigmas from the reference mean",
        consecutive: int = CONSECUTIVE,
    ) -> Detection:
        """Return a detection with the series that deviate most at the alarm as evidence.

        Parameters
        ----------
        by_series
            [T, d] signed share of each series in the score; its z by default.
        """
        shares = self.z if by_series is None else by_series
        return Detection.from_scores(
            self.windows.times_ns,
            scores,
            threshold,
            consecutive=consecutive,
            evidence=lambda row: largest_deviations(shares, self.windows, row, detail),
        )


class HeldOutDetector(TrainingFreeBaseline):
    """Base class of detectors of deviations with a held-out reference."""

    silent_threshold: ClassVar[float] = 0.0
    """Threshold of the answer if there are too few samples."""

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference."""
        held_out = read_held_out(episode)
        return Detection.silent(self.silent_threshold) if held_out is None else self.score(episode, held_out)

    def score(self, episode: EpisodeView, held_out: HeldOut) -> Detection:
        """Score the deviations of an episode."""
        raise NotImplementedError


def read_held_out(episode: EpisodeView) -> HeldOut | None:
    """Return an episode's deviations; None if there are too few samples to hold any out."""
    return episode.once("held out", lambda: _build_held_out(detection_windows(episode)))


def _build_held_out(windows: Windows) -> HeldOut | None:
    if windows.empty or len(windows.reference) < MIN_SAMPLES:
        return None
    z = np.clip(measure_deviations(windows), -CLIP, CLIP)
    normal = hold_out_deviations(windows.reference, windows.series)
    for matrix in (normal, z):
        matrix.flags.writeable = False
    return HeldOut(windows=windows, normal=normal, z=z)
