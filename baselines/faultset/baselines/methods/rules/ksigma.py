"""K-sigma with Bonferroni: the plain detector whose alarm starts every localizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import CONSECUTIVE, Detection, Evidence, Untrained, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.series_scores import largest_deviations
from faultset.baselines.features.windows import detection_windows
from faultset.baselines.stats.limits import LEVEL, bonferroni_sigmas
from faultset.baselines.stats.scaling import deviations, mean_and_sd, sustained, varies, with_metric_floor

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@baseline(
    "ksigma",
    title="K-sigma with Bonferroni",
    task="detection",
    paper="Textbook rule",
    kind="rule",
    developed_on=OWN,
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

    K is chosen so that, with as many series as move within the reference, three sigma's worth of false flags per
    sample remains.

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
        moving = int(varies(windows.reference).sum())
        threshold = bonferroni_sigmas(moving, level=self.level, samples=samples)
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
