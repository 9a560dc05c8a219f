"""K-sigma with Bonferroni: the plain detector whose alarm starts every localizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri, stdtrit

from faultset.baselines.api.contract import CONSECUTIVE, Detection, Evidence, Untrained, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.features.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.baselines.features.windows import Windows, detection_windows

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

LEVEL = 0.0027
_TOLD = 5


def bonferroni_sigmas(series: int, *, level: float = LEVEL, samples: int | None = None) -> float:
    """Sigmas beyond which one of `series` independent normal values lies with probability `level`.

    With a number of samples, it allows for mean and spread being estimated from them: Student's prediction interval.

    >>> round(bonferroni_sigmas(1), 2), round(bonferroni_sigmas(100), 2)
    (3.0, 4.2)
    >>> round(bonferroni_sigmas(100, samples=40), 2)
    4.81
    """
    tail = level / (2 * max(series, 1))
    if samples is None or samples < 2:
        return -float(ndtri(tail))
    return -float(stdtrit(samples - 1, tail) * np.sqrt(1 + 1 / samples))


def sustained(z: Matrix, steps: int) -> Matrix:
    """Smallest |z| of each series over the last `steps` rows: what a single spike does not reach."""
    padded = np.vstack([np.zeros((steps - 1, z.shape[1])), np.abs(z)])
    return np.lib.stride_tricks.sliding_window_view(padded, steps, axis=0).min(axis=-1)


def largest_deviations(z: Matrix, windows: Windows, row: int, detail: str) -> tuple[Evidence, ...]:
    """Name the series that deviate most in one row."""
    order = np.argsort(-np.abs(z[row]), kind="stable")[:_TOLD]
    return tuple(
        Evidence(
            service=windows.series[column][0],
            subject=windows.series[column][1],
            score=float(abs(z[row, column])),
            detail=f"{detail}, {'up' if z[row, column] > 0 else 'down'}"
            if not windows.absent[row, column]
            else "series stopped",
        )
        for column in order
    )


@baseline(
    "ksigma",
    title="K-sigma with Bonferroni",
    task="detection",
    paper="Textbook rule; the named source of alarms for every localizer",
    kind="rule",
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T)",
    departures=(
        "K is that of a prediction interval from as many samples as the reference has.",
        "The two samples in a row must be of the same series.",
        "A spread is at least a quarter of what the metric has over all services.",
        "Series that stop count as deviating by ten sigma.",
    ),
)
class KSigma(Untrained):
    """Detect when some series is K standard deviations from its reference for two samples in a row.

    K is chosen so that, with as many series as there are, three sigma's worth of false flags per sample
    remains.

    Parameters
    ----------
    level
        Probability that a healthy sample is flagged, for normal and independent series.

    References
    ----------
    The rule is older than this field; Shewhart, Economic Control of Quality of Manufactured Product, 1931.
    """

    def __init__(self, *, level: float = LEVEL) -> None:
        self.level = level

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its largest |z|."""
        windows = detection_windows(episode)
        samples = len(windows.reference)
        threshold = bonferroni_sigmas(len(windows.series), level=self.level, samples=samples)
        if windows.empty:
            return Detection.silent(threshold)
        mean, sd = mean_and_sd(windows.reference)
        z = deviations(windows.values, mean, with_metric_floor(sd, windows.series), windows.absent)
        lasting = sustained(z, CONSECUTIVE)
        scores = lasting.max(axis=1)
        alarm = first_alarm(windows.times_ns, scores > threshold, consecutive=1)
        evidence: tuple[Evidence, ...] = ()
        if alarm is not None:
            row = int(np.searchsorted(windows.times_ns, alarm))
            signed = np.sign(z) * lasting
            evidence = largest_deviations(signed, windows, row, "sigmas from the reference mean for two samples")
        return Detection.from_scores(windows.times_ns, scores, threshold, consecutive=1, evidence=evidence)
