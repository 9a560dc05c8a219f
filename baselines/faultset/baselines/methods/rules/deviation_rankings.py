"""Localizers that rank series by how far they deviate from normal, and services by their first series.

`nsigma` and `baro` are the published scorers, with the preprocessing of their code. The variants beside them look both
ways and keep series that were constant, on the scale on which their metric moves in the system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from faultset.baselines.api.contract import Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.series_scores import rank_by_series
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.stats.scaling import (
    Matrix,
    deviations,
    mean_and_sd,
    median_and_iqr,
    quantiles,
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
    known = np.where(np.isfinite(z), z, 0.0)
    highest = np.maximum((np.abs(known) if sign == "both" else known).max(axis=0), 0.0)
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
