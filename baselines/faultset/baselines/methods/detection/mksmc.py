"""MKSMC: a multivariate K-sigma score that is calibrated by simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.baselines.api.contract import Detection, Evidence, TrainingFreeBaseline, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.windows import Windows, detection_windows
from faultset.baselines.stats.outlier_scores import (
    CLIP,
    Projection,
    out_of_fold_maximum,
    random_directions,
)
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, metric_floor, varies

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

_MAX_EVIDENCE = 5


@baseline(
    "mksmc",
    title="MKSMC",
    task="detection",
    paper="Cetin, Tasgin, UBMK 2020 (MKSMC); only the title is public",
    kind="named",
    developed_on=OWN,
    tables=("metrics",),
    stochastic=True,
    speed="fast",
    reconstruction=True,
    open_settings={
        "k": (3.0, 2.0, 4.0),
        "directions": (1000, 100),
        "robust": (False, True),
        "group_by_service": (False, True),
        "metric_floor": (True, False),
    },
    complexity="O(B·S·(n + T + M)), B directions, M simulated samples",
    departures=(
        "Only the title of the paper is public; the method is our interpretation of it.",
        "The threshold is never below the largest out-of-fold score of the reference.",
        "The standard deviation of a series is at least 1 % of its level, and at least a quarter of the metric's "
        "standard deviation over all services.",
        "Deviations are clipped at 20 sigma; a series that stopped counts as a deviation of 10 sigma.",
        "Scores are computed along the axes and 1,000 random directions; the authors' number is unknown.",
    ),
)
class MKSMC(TrainingFreeBaseline):
    """Detect samples that deviate by more than K sigma in any series or along any random direction.

    A simulation of the normal model gives the probability p that healthy samples deviate as much in any direction. The
    score is the K, in sigmas, that one normal variable exceeds with probability p.

    Parameters
    ----------
    k
        Number of sigmas beyond which a sample is anomalous.
    directions
        Number of random directions in addition to the axes.
    draws
        Number of simulated samples, each conditioned on a large deviation.
    shrink
        Weight of the identity in the correlation matrix; at least 0.1 by default, more for few samples.
    robust
        Standardise by median and median absolute deviation.
    guard
        Raise the threshold to the largest out-of-fold score of the reference; by default only with fewer than three
        samples per series.
    group_by_service
        Score each service separately, at a level divided by the number of services, so that quiet series do not dilute
        a fault.
    metric_floor
        Raise the standard deviation of each series to a quarter of its metric's standard deviation over all services.

    References
    ----------
    Cetin, Tasgin, Anomaly detection with multivariate K-sigma score using Monte Carlo, UBMK 2020.
    """

    def __init__(
        self,
        *,
        k: float = 3.0,
        directions: int = 1000,
        draws: int = 200,
        shrink: float | None = None,
        robust: bool = False,
        guard: bool | None = None,
        group_by_service: bool = False,
        metric_floor: bool = True,
        seed: int = 0,
    ) -> None:
        self.k = k
        self.directions = directions
        self.draws = draws
        self.shrink = shrink
        self.robust = robust
        self.guard = guard
        self.group_by_service = group_by_service
        self.metric_floor = metric_floor
        self.seed = seed

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference."""
        windows = detection_windows(episode)
        if windows.empty:
            return Detection.silent(self.k)
        rng = np.random.default_rng(self.seed)
        floor = np.zeros(len(windows.series))
        if self.metric_floor:
            floor = metric_floor(mean_and_sd(windows.reference)[1], windows.series)
        groups = self._groups(windows)
        parts = [self._score(windows, columns, floor[columns], len(groups), rng) for columns in groups]
        # Thresholds differ between groups because of `guard`, so compare the margins above them.
        margins = np.array([score - threshold for score, threshold, _ in parts])
        leading = margins.argmax(axis=0)
        threshold = max(limit for _, limit, _ in parts)
        scores = margins.max(axis=0) + threshold
        alarm = first_alarm(windows.times_ns, scores > threshold)
        evidence: tuple[Evidence, ...] = ()
        if alarm is not None:
            row = int(np.searchsorted(windows.times_ns, alarm))
            group = int(leading[row])
            evidence = self._explain(windows, groups[group], parts[group][2][row])
        return Detection.from_scores(windows.times_ns, scores, threshold, evidence=evidence)

    def _groups(self, windows: Windows) -> list[npt.NDArray[np.intp]]:
        all_columns = np.arange(len(windows.series))
        if not self.group_by_service:
            return [all_columns]
        owner = np.array(windows.services)
        return [all_columns[owner == service] for service in sorted(set(windows.services))]

    def _score(
        self, windows: Windows, columns: npt.NDArray[np.intp], floor: Matrix, groups: int, rng: np.random.Generator
    ) -> tuple[Matrix, float, Matrix]:
        """Return the equivalent sigmas of each sample, their threshold, and the share of each series in them.

        Series that are constant in the reference are scored separately, because they have no correlations.
        """
        varying = varies(windows.reference[:, columns])
        reference = windows.reference[:, columns[varying]]
        constant = self._standardise_constant(windows, columns[~varying], floor[~varying])
        shares = np.zeros((len(windows.values), len(columns)))
        shares[:, ~varying] = constant
        furthest = constant.max(axis=1, initial=0.0)
        if not varying.any():
            return furthest, self.k, shares
        floor = floor[varying]
        directions = random_directions(reference.shape[1], max(1, self.directions // groups), rng)
        model = Projection.fit(reference, directions, shrink=self.shrink, robust=self.robust, floor=floor)
        null = model.simulate(self.draws, rng)
        z = model.standardise(windows.values[:, columns[varying]], windows.absent[:, columns[varying]])
        raw, best = model.score(z)
        shares[:, varying] = model.split(z, best)
        raw = np.maximum(raw, furthest / np.sqrt(model.shrink)) if model.shrink else np.maximum(raw, furthest)
        limit = null.limit(self.k, groups)
        guarded = self.guard if self.guard is not None else len(reference) < 3 * reference.shape[1]
        if guarded:
            worst = out_of_fold_maximum(reference, directions, shrink=self.shrink, robust=self.robust, floor=floor)
            limit = max(limit, worst)
        sigmas = null.equivalent_sigma(np.append(raw, limit))
        return sigmas[:-1], float(sigmas[-1]), shares

    def _standardise_constant(self, windows: Windows, columns: npt.NDArray[np.intp], floor: Matrix) -> Matrix:
        """Return deviations [T, columns] of series that are constant in the reference."""
        center, scale = mean_and_sd(windows.reference[:, columns])
        z = deviations(windows.values[:, columns], center, np.maximum(scale, floor), windows.absent[:, columns])
        return np.minimum(np.abs(z), CLIP)

    @staticmethod
    def _explain(windows: Windows, columns: npt.NDArray[np.intp], shares: Matrix) -> tuple[Evidence, ...]:
        order = np.argsort(-shares, kind="stable")[:_MAX_EVIDENCE]
        return tuple(
            Evidence(
                service=windows.series[columns[position]][0],
                subject=windows.series[columns[position]][1],
                score=float(shares[position]),
                detail="share in the direction that deviates most, in sigmas",
            )
            for position in order
            if shares[position] > 0
        )
