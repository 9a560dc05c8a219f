"""Rules on the deviation of metrics from their healthy level."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from faultset.baselines.api.contract import CONSECUTIVE, Detection, Evidence, Ranking, TrainingFreeBaseline, first_alarm
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
    "Two-sided: the published code takes the signed maximum and misses decreases.",
    "Constant series are kept.",
    "The standard deviation of a series is at least 1 % of its level, and at least a quarter of the metric's standard "
    "deviation over all services.",
    "A series that stopped counts as a deviation of ten sigma.",
)


def published_scores(
    reference: Matrix, values: Matrix, *, robust: bool, sign: Sign = "up", keep_constant: bool = False
) -> Matrix:
    """Return the largest upward deviation of each series, as in the published code.

    Series that never rise or are constant in either window score 0. A standard deviation or range of 0 counts as 1.

    Parameters
    ----------
    robust
        Whether to use median and interquartile range (BARO) instead of mean and standard deviation (N-Sigma).
    sign
        "both" also counts decreases, unlike the published code.
    keep_constant
        Whether to keep series that are constant in either window, unlike the published code.
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


class _ByHighestSeries(TrainingFreeBaseline):
    """Base class of methods that rank services by their highest series."""

    detail: ClassVar[str]
    """Description of a score in the evidence."""

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by the largest deviation of their series since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        return rank_by_series(self.scores(windows), windows.series, episode.services, detail=self.detail)

    def scores(self, windows: Windows) -> Matrix:
        """Return the deviation of each series."""
        raise NotImplementedError


class _Published(_ByHighestSeries):
    """Base class of the published scorers, with optional preprocessing."""

    robust: ClassVar[bool]

    def __init__(self, *, sign: Sign = "up", keep_constant: bool = False) -> None:
        self.sign: Sign = sign
        self.keep_constant = keep_constant

    def scores(self, windows: Windows) -> Matrix:
        """Return the largest deviation of each series."""
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
    departures=("Gaps are ignored; the published code repeats the last value, or uses 0 if there is none.",),
)
class NSigma(_Published):
    """Rank services by the largest z of their series that vary before and after the alarm.

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
        "Only the scorer; the alarm comes from a detector such as baro-change-point.",
        "Gaps are ignored; the published code repeats the last value, or uses 0 if there is none.",
    ),
)
class Baro(_Published):
    """Rank services by the largest rise above the median in interquartile ranges.

    A range of 0 counts as 1, as in the published code, so the score of such a series depends on its unit.

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
    """Rank services by the largest |z| of their series.

    References
    ----------
    Pham et al., RCAEval: a benchmark for root cause analysis of microservice systems, WWW 2025.
    """

    detail = "largest |z|"

    def scores(self, windows: Windows) -> Matrix:
        """Return the largest deviation of each series."""
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
        """Return the largest deviation of each series."""
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
        "K comes from a prediction interval for the number of reference samples.",
        "Two consecutive samples of the same series must deviate.",
        "The standard deviation of a series is at least a quarter of the metric's standard deviation over all "
        "services.",
        "A series that stopped counts as a deviation of ten sigma.",
    ),
)
class KSigma(TrainingFreeBaseline):
    """Detect when a series deviates from its reference by K sigma for two consecutive samples.

    K depends on the number of varying series (Bonferroni), so that healthy samples are flagged with probability
    `level`.

    Parameters
    ----------
    level
        Probability that a healthy sample is flagged, for normal and independent series.

    References
    ----------
    Shewhart, Economic Control of Quality of Manufactured Product, 1931.
    """

    def __init__(self, *, level: float = LEVEL) -> None:
        self.level = level

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its largest |z|."""
        windows = detection_windows(episode)
        samples = len(windows.reference)
        varying = int(varies(windows.reference).sum())
        threshold = bonferroni_sigmas(varying, level=self.level, samples=samples)
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


SUSTAINED_STEPS = 3
CLIP = 100.0
_PAPER = "Fang et al., arXiv 2510.04711 (SimpleRCA-like, metrics only); rationale in arXiv 2406.05014"


def robust_deviations(
    reference: Matrix, values: Matrix, absent: np.ndarray, series: tuple[tuple[str, str], ...]
) -> Matrix:
    """Return |deviation| from the median over the larger of median absolute and standard deviation, clipped at 100.

    The median absolute deviation alone is 0 for series that are idle more than half of the time.
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
class MaxZDetector(TrainingFreeBaseline):
    """Control: detect deviations that are larger than any in the reference and last for three samples.

    The limit is the largest deviation of any quarter of the reference from the three others, and at least `min_limit`.

    References
    ----------
    Fang et al., arXiv 2510.04711, 2025, for the performance of such rules.
    """

    def __init__(self, *, min_limit: float = 3.0) -> None:
        self.min_limit = min_limit

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by its largest sustained |z|."""
        windows = detection_windows(episode)
        if windows.empty:
            return Detection.silent(self.min_limit)
        within = np.zeros(len(windows.series))
        pieces = np.array_split(np.arange(len(windows.reference)), 4)
        for piece in pieces if min(map(len, pieces)) >= SUSTAINED_STEPS else []:
            rest = np.setdiff1d(np.arange(len(windows.reference)), piece)
            never_absent = np.zeros((len(piece), len(windows.series)), dtype=bool)
            z = robust_deviations(windows.reference[rest], windows.reference[piece], never_absent, windows.series)
            within = np.maximum(within, sustained(z, SUSTAINED_STEPS).max(axis=0))
        # Series that are idle in a part of the reference would make the limit too high.
        steady = within < CLIP
        limit = max(self.min_limit, float(within[steady].max(initial=0.0)))
        z = (
            sustained(
                robust_deviations(windows.reference, windows.values, windows.absent, windows.series), SUSTAINED_STEPS
            )
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
    own_detector="max-z-detector",
    complexity="O(S·T)",
    departures=(
        "Two-sided, on metrics only, and a deviation must last for three samples.",
        "The standard deviation of a series is at least a quarter of the metric's standard deviation over all "
        "services.",
    ),
)
class MaxZ(TrainingFreeBaseline):
    """Control: rank services by the series with the largest lasting deviation.

    Deviations are clipped at 100 sigma. The mean deviation of a service's series breaks ties.

    References
    ----------
    Fang et al., arXiv 2510.04711, 2025; Li et al., arXiv 2406.05014, 2024, for the theory.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their most deviating series since the alarm."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        z = robust_deviations(windows.reference, windows.values, windows.absent, windows.series)
        return rank_by_series(
            sustained(z, SUSTAINED_STEPS).max(axis=0),
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
    """Control: `max-z`, but services whose pods were replaced successfully rank last.

    References
    ----------
    As for `max-z`.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their most deviating series since the alarm; services with a rollout come last."""
        ranking, rollouts = super().localize(episode, alarm_ns), successful_rollouts(episode, alarm_ns)
        scores = {name: score * (_LAST if name in rollouts else 1.0) for name, score in ranking.scores.items()}
        return replace(ranking, scores=scores)


_LAST = 1e-6
