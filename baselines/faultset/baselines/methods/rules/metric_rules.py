"""Rules on the deviation of metrics from their healthy level."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from faultset.baselines.contract import CONSECUTIVE, Detection, Ranking, TrainingFreeBaseline
from faultset.baselines.features.metric_alarms import largest_deviations, rank_by_series, series_evidence
from faultset.baselines.features.object_states import successful_rollouts
from faultset.baselines.features.windows import Windows, detection_windows, localization_windows, measure_deviations
from faultset.baselines.registry import detector, localizer
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
        Whether to use the median and interquartile range (BARO), not the mean and standard deviation (N-Sigma).
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


class _HighestSeriesRule(TrainingFreeBaseline):
    """Base class of methods that rank services by their highest series."""

    detail: ClassVar[str]
    """Description of a score in the evidence."""

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        return rank_by_series(self.scores(windows), windows.series, episode.services, detail=self.detail)

    def scores(self, windows: Windows) -> Matrix:
        raise NotImplementedError


class _PublishedScorer(_HighestSeriesRule):
    """Base class of the published scorers, with optional preprocessing."""

    robust: ClassVar[bool]

    def __init__(self, *, sign: Sign = "up", keep_constant: bool = False) -> None:
        self.sign: Sign = sign
        self.keep_constant = keep_constant

    def scores(self, windows: Windows) -> Matrix:
        return published_scores(
            windows.reference,
            windows.values,
            robust=self.robust,
            sign=self.sign,
            keep_constant=self.keep_constant,
        )


@localizer(
    "nsigma",
    title="N-Sigma",
    paper=_NSIGMA,
    complexity="O(S·T), S series of T samples",
    departures=("Gaps are ignored; the published code repeats the last value, or uses 0 if there is none.",),
)
class NSigma(_PublishedScorer):
    """Rank services by the largest z of their series that vary before and after the alarm.

    References
    ----------
    Pham et al., RCAEval: a benchmark for root cause analysis of microservice systems, WWW 2025.
    """

    detail = "largest z"
    robust = False


@localizer(
    "baro",
    title="BARO (scorer)",
    paper=_BARO,
    complexity="O(S·T), S series of T samples",
    departures=(
        "Only the scorer; the alarm comes from a detector such as baro-change-point.",
        "Gaps are ignored; the published code repeats the last value, or uses 0 if there is none.",
    ),
)
class Baro(_PublishedScorer):
    """Rank services by the largest rise above the median in interquartile ranges.

    A range of 0 counts as 1, as in the published code, so the score of such a series depends on its unit.

    References
    ----------
    Pham, Ha, Zhang, BARO: robust root cause analysis for microservices via multivariate Bayesian online
    change point detection, FSE 2024.
    """

    detail = "largest (x - median) / IQR"
    robust = True


@localizer(
    "nsigma-two-sided",
    title="N-Sigma, two-sided",
    paper=_NSIGMA,
    kind="own",
    complexity="O(S·T), S series of T samples",
    departures=_OWN_FORM,
)
class NSigmaTwoSided(_HighestSeriesRule):
    """Rank services by the largest |z| of their series.

    References
    ----------
    Pham et al., RCAEval: a benchmark for root cause analysis of microservice systems, WWW 2025.
    """

    detail = "largest |z|"

    def scores(self, windows: Windows) -> Matrix:
        return _two_sided(windows, *mean_and_sd(windows.reference))


@localizer(
    "baro-two-sided",
    title="BARO (scorer), two-sided",
    paper=_BARO,
    kind="own",
    complexity="O(S·T), S series of T samples",
    departures=_OWN_FORM,
)
class BaroTwoSided(_HighestSeriesRule):
    """Rank services by the largest distance from the median in interquartile ranges.

    References
    ----------
    Pham, Ha, Zhang, BARO: robust root cause analysis for microservices via multivariate Bayesian online
    change point detection, FSE 2024.
    """

    detail = "largest |x - median| / IQR"

    def scores(self, windows: Windows) -> Matrix:
        return _two_sided(windows, *median_and_iqr(windows.reference))


@detector(
    "ksigma",
    title="K-sigma with Bonferroni",
    paper="Textbook rule",
    kind="rule",
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
        z = measure_deviations(windows)
        lasting = sustained(z, CONSECUTIVE)
        detail = "sigmas from the reference mean for two samples"
        return Detection.from_scores(
            windows.times_ns,
            lasting.max(axis=1),
            threshold,
            consecutive=1,
            evidence=lambda row: largest_deviations(np.sign(z) * lasting, windows, row, detail),
        )


SUSTAINED_STEPS = 3
CLIP = 100.0
_PAPER = "Fang et al., arXiv 2510.04711 (SimpleRCA-like, metrics only); rationale in arXiv 2406.05014"


def robust_deviations(
    reference: Matrix, values: Matrix, absent: np.ndarray | None, series: tuple[tuple[str, str], ...]
) -> Matrix:
    """Return |deviation| from the median, divided by the larger of MAD and standard deviation and clipped at 100.

    The median absolute deviation alone is 0 for series that are idle more than half of the time.
    """
    center, mad = median_and_mad(reference)
    _, sd = mean_and_sd(reference)
    scale = with_metric_floor(np.maximum(mad, sd), series)
    z = np.abs(deviations(values, center, scale, absent))
    return np.minimum(z, CLIP)


@detector("max-z-detector", title="Max-z", paper=_PAPER, kind="control", complexity="O(S·T)")
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
        largest = np.zeros(len(windows.series))
        pieces = np.array_split(np.arange(len(windows.reference)), 4)
        for piece in pieces if min(map(len, pieces)) >= SUSTAINED_STEPS else []:
            rest = np.setdiff1d(np.arange(len(windows.reference)), piece)
            z = robust_deviations(windows.reference[rest], windows.reference[piece], None, windows.series)
            largest = np.maximum(largest, sustained(z, SUSTAINED_STEPS).max(axis=0))
        # Series that are idle in a part of the reference would make the limit too high.
        is_steady = largest < CLIP
        limit = max(self.min_limit, float(largest[is_steady].max(initial=0.0)))
        z = robust_deviations(windows.reference, windows.values, windows.absent, windows.series)
        lasting = sustained(z, SUSTAINED_STEPS) * is_steady
        return Detection.from_scores(
            windows.times_ns,
            lasting.max(axis=1),
            limit,
            evidence=lambda row: largest_deviations(lasting, windows, row, "robust sigmas for three samples"),
        )


@localizer(
    "max-z",
    title="Max-z",
    paper=_PAPER,
    kind="control",
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


@localizer(
    "max-z-without-rollouts",
    title="Max-z without rollouts",
    paper=_PAPER,
    kind="control",
    tables=("metrics", "objects"),
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
        scores = {
            name: score * (_ROLLOUT_FACTOR if name in rollouts else 1.0) for name, score in ranking.scores.items()
        }
        return replace(ranking, scores=scores)


_ROLLOUT_FACTOR = 1e-6


Pooling = Literal["max", "mean"]
Combination = Literal["additive", "conjunctive"]
INTERNAL = frozenset({"cpu", "throttling", "memory", "disk", "descriptors", "threads", "saturation"})
EXTERNAL = frozenset({"latency", "errors", "traffic"})


def combine_properties(internal: Matrix, external: Matrix, combination: Combination = "additive") -> Matrix:
    """Return the root cause score of each service from its largest internal and external deviations.

    Additive (equation 3): s - ln(1 + s), where s is their sum. Conjunctive (equation 4): the smaller of the two.

    >>> combine_properties(np.array([2.0, 0.0]), np.array([4.0, 5.0])).round(3).tolist()
    [4.054, 3.208]
    >>> combine_properties(np.array([2.0, 0.0]), np.array([4.0, 5.0]), "conjunctive").tolist()
    [2.0, 0.0]
    """
    if combination == "conjunctive":
        return np.minimum(internal, external)
    total = internal + external
    return total - np.log1p(total)


@localizer(
    "prism",
    title="PRISM",
    paper="Pham, Graph-free root cause analysis, arXiv 2601.21359, 2026",
    complexity="O(S·T)",
    reconstruction=True,
    open_settings={"pooling_of_time": ("max", "mean"), "combination": ("additive", "conjunctive")},
    departures=(
        "The role of a metric decides whether it is internal; traffic, on which the paper is silent, is external.",
        "Spreads are at least 1 % of the level and a quarter of the metric's spread over all services.",
        "Series that stop deviate by ten spreads.",
    ),
)
class PRISM(TrainingFreeBaseline):
    """Rank services by their largest internal plus their largest external deviation.

    A fault starts inside a service, so its resources deviate. It spreads through interfaces, so other services only
    deviate in latency, errors and traffic.

    Parameters
    ----------
    pooling_of_time
        How the deviations of a series since the alarm are pooled. The paper leaves this open.
    combination
        `additive` is the paper's default.

    References
    ----------
    Pham, Graph-free root cause analysis, arXiv 2601.21359, 2026.
    """

    def __init__(self, *, pooling_of_time: Pooling = "max", combination: Combination = "additive") -> None:
        self.pooling_of_time: Pooling = pooling_of_time
        self.combination: Combination = combination

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        z = np.abs(measure_deviations(windows))
        score = z.max(axis=0) if self.pooling_of_time == "max" else z.mean(axis=0)
        roles = [episode.catalogue.role_of(metric) for _, metric in windows.series]
        names = sorted(set(windows.services))
        owner = np.searchsorted(names, windows.services)
        pooled = []
        for property_roles in (INTERNAL, EXTERNAL):
            chosen = np.flatnonzero([role in property_roles for role in roles])
            largest = np.zeros(len(names))
            np.maximum.at(largest, owner[chosen], score[chosen])
            pooled.append(largest)
        total = combine_properties(pooled[0], pooled[1], self.combination)
        classified = np.flatnonzero([role in INTERNAL | EXTERNAL for role in roles])
        order = sorted(classified.tolist(), key=lambda column: (-score[column], windows.series[column]))
        evidence = series_evidence(
            windows.series,
            score,
            order[:10],
            lambda column: f"{'internal' if roles[column] in INTERNAL else 'external'}, healthy spreads",
        )
        metrics = {windows.series[column]: float(score[column]) for column in order}
        return Ranking.of(dict(zip(names, total.tolist(), strict=True)), episode.services, evidence, metrics)
