"""Rank and detect by the deviation of metrics from their healthy level."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from faultset.baselines.api.contract import CONSECUTIVE, Detection, Evidence, Ranking, Untrained, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN, OWN_AND_PUBLISHED
from faultset.baselines.features.metric_alarms import largest_deviations, rank_by_series
from faultset.baselines.features.object_states import successful_rollouts
from faultset.baselines.features.windows import Windows, detection_windows, localization_windows
from faultset.baselines.stats.scaling import (
    LEVEL,
    Matrix,
    bonferroni_sigmas,
    deviations,
    mean_and_sd,
    median_and_iqr,
    median_and_mad,
    quantiles,
    sustained,
    varies,
    with_metric_floor,
)

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Sign = Literal["up", "both"]
_NSIGMA = "Pham et al., RCAEval, WWW 2025 (as N-Sigma)"
_BARO = "Pham, Ha, Zhang, BARO, FSE 2024"
_OWN_FORM = (
    "Two-sided: the published code takes the signed maximum and never finds what drops.",
    "Series that were constant are kept.",
    "Spreads are at least one percent of the level and a quarter of what the metric has over all services.",
    "Series that stop count as deviating by ten spreads.",
)


def published_scores(
    reference: Matrix, values: Matrix, *, robust: bool, sign: Sign = "up", keep_constant: bool = False
) -> Matrix:
    """[series] largest deviation upwards, as the published code has it.

    Series that are constant in either window are left out, which here is a score of 0, and so is a series that never
    rises. A spread of 0 counts as 1.

    Parameters
    ----------
    robust
        Median and interquartile range (BARO) instead of mean and standard deviation (N-Sigma).
    sign
        "both" also counts what falls, which the published code does not.
    keep_constant
        Whether series that are constant in either window are kept, which the published code drops.
    """
    if robust:
        low, center, high = quantiles(reference, (0.25, 0.5, 0.75))
        spread = high - low
    else:
        center, spread = np.nanmean(reference, axis=0), np.nanstd(reference, axis=0)
    z = (values - center) / np.where(spread > 0, spread, 1.0)
    finite = np.where(np.isfinite(z), z, 0.0)
    highest = np.maximum((np.abs(finite) if sign == "both" else finite).max(axis=0), 0.0)
    return highest if keep_constant else np.where(varies(reference) & varies(values), highest, 0.0)


def _two_sided(windows: Windows, center: Matrix, spread: Matrix) -> Matrix:
    scale = with_metric_floor(spread, windows.series)
    return np.abs(deviations(windows.values, center, scale, windows.absent)).max(axis=0)


class _ByHighestSeries(Untrained):
    """Ranks services by their highest series."""

    detail: ClassVar[str]
    """What a score is, for the person who reads the evidence."""

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by the largest deviation of their series since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        return rank_by_series(self.scores(windows), windows.series, episode.services, detail=self.detail)

    def scores(self, windows: Windows) -> Matrix:
        """[series] how far each series leaves normal."""
        raise NotImplementedError


class _Published(_ByHighestSeries):
    """The published scorers, whose preprocessing can be changed to see what it is worth."""

    robust: ClassVar[bool]

    def __init__(self, *, sign: Sign = "up", keep_constant: bool = False) -> None:
        self.sign: Sign = sign
        self.keep_constant = keep_constant

    def scores(self, windows: Windows) -> Matrix:
        """[series] largest deviation."""
        return published_scores(
            windows.reference,
            windows.values,
            robust=self.robust,
            sign=self.sign,
            keep_constant=self.keep_constant,
        )


@baseline(
    "nsigma",
    title="N-Sigma",
    task="localization",
    paper=_NSIGMA,
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T), S series of T samples",
    departures=("Gaps are no samples; the published code repeats the last value, and puts 0 where there is none.",),
)
class NSigma(_Published):
    """Rank services by the largest z of any of their series that varies before and after the alarm.

    References
    ----------
    Pham et al., RCAEval: a benchmark for root cause analysis of microservice systems, WWW 2025.
    """

    detail = "largest z"
    robust = False


@baseline(
    "baro",
    title="BARO (scorer)",
    task="localization",
    paper=_BARO,
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T), S series of T samples",
    departures=(
        "The scorer only: the alarm comes from a detector, for instance baro-change-point.",
        "Gaps are no samples; the published code repeats the last value, and puts 0 where there is none.",
    ),
)
class Baro(_Published):
    """Rank services by the largest rise from the median in interquartile ranges, of series that vary.

    A range of 0 counts as 1, as in the published code, and lets the unit of such a series decide.

    References
    ----------
    Pham, Ha, Zhang, BARO: robust root cause analysis for microservices via multivariate Bayesian online
    change point detection, FSE 2024.
    """

    detail = "largest (x - median) / IQR"
    robust = True


@baseline(
    "nsigma-two-sided",
    title="N-Sigma, two-sided",
    task="localization",
    paper=_NSIGMA,
    kind="own",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T), S series of T samples",
    departures=_OWN_FORM,
)
class NSigmaTwoSided(_ByHighestSeries):
    """Rank services by the largest |z| of any of their series.

    References
    ----------
    Pham et al., RCAEval: a benchmark for root cause analysis of microservice systems, WWW 2025.
    """

    detail = "largest |z|"

    def scores(self, windows: Windows) -> Matrix:
        """[series] largest deviation."""
        return _two_sided(windows, *mean_and_sd(windows.reference))


@baseline(
    "baro-two-sided",
    title="BARO (scorer), two-sided",
    task="localization",
    paper=_BARO,
    kind="own",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T), S series of T samples",
    departures=_OWN_FORM,
)
class BaroTwoSided(_ByHighestSeries):
    """Rank services by the largest distance from the median in interquartile ranges.

    References
    ----------
    Pham, Ha, Zhang, BARO: robust root cause analysis for microservices via multivariate Bayesian online
    change point detection, FSE 2024.
    """

    detail = "largest |x - median| / IQR"

    def scores(self, windows: Windows) -> Matrix:
        """[series] largest deviation."""
        return _two_sided(windows, *median_and_iqr(windows.reference))


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


SUSTAINED = 3
CLIP = 100.0
_PAPER = "Fang et al., arXiv 2510.04711 (SimpleRCA-like, metrics only); rationale in arXiv 2406.05014"


def robust_deviations(
    reference: Matrix, values: Matrix, absent: np.ndarray, series: tuple[tuple[str, str], ...]
) -> Matrix:
    """|z| by the median and the larger of the two spreads, capped.

    The median absolute deviation alone is zero for a series that is idle more than half of the time.
    """
    center, mad = median_and_mad(reference)
    _, sd = mean_and_sd(reference)
    scale = with_metric_floor(np.maximum(mad, sd), series)
    z = np.abs(deviations(values, center, scale, absent))
    return np.minimum(z, CLIP)


@baseline(
    "max-z-detector",
    title="Max-z",
    task="detection",
    paper=_PAPER,
    kind="control",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T)",
)
class MaxZDetector(Untrained):
    """Control: detect when some series stays further from normal than any did within the reference.

    A deviation counts when it lasts for three samples. The limit is the largest that a quarter of the
    reference shows against the rest of it, and at least `least`.

    References
    ----------
    Fang et al., arXiv 2510.04711, 2025, for how far such rules go.
    """

    def __init__(self, *, least: float = 3.0) -> None:
        self.least = least

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its largest sustained |z|."""
        windows = detection_windows(episode)
        if windows.empty:
            return Detection.silent(self.least)
        within = np.zeros(len(windows.series))
        pieces = np.array_split(np.arange(len(windows.reference)), 4)
        for piece in pieces if min(map(len, pieces)) >= SUSTAINED else []:
            rest = np.setdiff1d(np.arange(len(windows.reference)), piece)
            present = np.zeros((len(piece), len(windows.series)), dtype=bool)
            z = robust_deviations(windows.reference[rest], windows.reference[piece], present, windows.series)
            within = np.maximum(within, sustained(z, SUSTAINED).max(axis=0))
        # What is idle for a part of the reference only would set a limit that nothing can pass.
        steady = within < CLIP
        limit = max(self.least, float(within[steady].max(initial=0.0)))
        z = (
            sustained(robust_deviations(windows.reference, windows.values, windows.absent, windows.series), SUSTAINED)
            * steady
        )
        scores = z.max(axis=1)
        alarm = first_alarm(windows.times_ns, scores > limit)
        evidence: tuple[Evidence, ...] = ()
        if alarm is not None:
            row = int(np.searchsorted(windows.times_ns, alarm))
            evidence = largest_deviations(z, windows, row, "robust sigmas for three samples")
        return Detection.from_scores(windows.times_ns, scores, limit, evidence=evidence)


@baseline(
    "max-z",
    title="Max-z",
    task="localization",
    paper=_PAPER,
    kind="control",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="instant",
    trigger="max-z-detector",
    complexity="O(S·T)",
    departures=(
        "Two-sided, on metrics only, and a deviation must last for three samples.",
        "A spread is at least a quarter of what the metric has over all services.",
    ),
)
class MaxZ(Untrained):
    """Control: blame the service with the series that stayed furthest from normal.

    Deviations are capped at 100 sigma, beyond which units decide; among services at the cap the one with more
    series moving comes first.

    References
    ----------
    Fang et al., arXiv 2510.04711, 2025; Li et al., arXiv 2406.05014, 2024, for why the rule is principled.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their most deviating series since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        z = robust_deviations(windows.reference, windows.values, windows.absent, windows.series)
        return rank_by_series(
            sustained(z, SUSTAINED).max(axis=0),
            windows.series,
            episode.services,
            breadth=1 / CLIP,
            detail="robust sigmas for three samples",
        )


@baseline(
    "max-z-without-rollouts",
    title="Max-z without rollouts",
    task="localization",
    paper=_PAPER,
    kind="control",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics", "objects"),
    speed="instant",
    complexity="O(S·T + O), O object states",
    departures=("Services whose pods were replaced successfully come last.",),
)
class MaxZWithoutRollouts(MaxZ):
    """Control: `max-z`, with services whose pods were replaced successfully behind all others.

    References
    ----------
    As for `max-z`.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their most deviating series since the alarm, and those with a rollout last."""
        ranking, rollouts = super().localize(episode, alarm_ns), successful_rollouts(episode, alarm_ns)
        scores = {name: score * (_LAST if name in rollouts else 1.0) for name, score in ranking.scores.items()}
        return replace(ranking, scores=scores)


_LAST = 1e-6
