"""MKSMC: a multivariate K-sigma score that is calibrated by simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri_exp

from faultset.baselines.contract import Detection, Evidence, TrainingFreeBaseline
from faultset.baselines.features.metric_alarms import series_evidence
from faultset.baselines.features.windows import Windows, detection_windows
from faultset.baselines.registry import detector
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, median_and_mad, metric_floor, varies
from faultset.datasets.views import EpisodeView

CLIP = 20.0


def random_directions(dimensions: int, count: int, rng: np.random.Generator) -> Matrix:
    """Return `count` random unit vectors, one per row."""
    drawn = rng.standard_normal((count, dimensions))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def shrinkage(samples: int, dimensions: int) -> float:
    """Return the weight of the identity in the correlation matrix: at least 0.1, more for few samples."""
    return max(0.1, dimensions / (samples + dimensions))


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Normal behaviour along the coordinate axes and some other directions.

    The axes ensure that the score is never below the largest |z| of a series. In one dimension the score is K-sigma.
    """

    center: Matrix
    scale: Matrix
    directions: Matrix
    """[B, d] directions in addition to the axes."""
    spread: Matrix
    """[d + B] standard deviation of normal behaviour along each axis and direction, after shrinkage."""
    shrink: float
    normal: Matrix
    """[n, d] standardised reference."""

    @classmethod
    def fit(
        cls,
        reference: Matrix,
        directions: Matrix,
        *,
        shrink: float | None = None,
        robust: bool = False,
        floor: Matrix | float = 0.0,
    ) -> Projection:
        """Fit to a reference [n, d] whose gaps count as normal; no series has a scale below its floor."""
        center, scale = median_and_mad(reference) if robust else mean_and_sd(reference)
        scale = np.maximum(scale, floor)
        normal = _standardise(reference, center, scale)
        lam = shrinkage(*reference.shape) if shrink is None else shrink
        variance = np.mean(np.hstack([normal, normal @ directions.T]) ** 2, axis=0)
        # Without a minimum, a direction in which the reference is constant would decide everything.
        spread = np.sqrt(np.maximum((1 - lam) * variance + lam, 1e-18))
        return cls(center=center, scale=scale, directions=directions, spread=spread, shrink=lam, normal=normal)

    def standardise(self, values: Matrix, absent: npt.NDArray[np.bool_] | None = None) -> Matrix:
        """Return deviations in standard deviations, clipped so that one series cannot dominate the others."""
        return _standardise(values, self.center, self.scale, absent)

    def score(self, z: Matrix) -> tuple[Matrix, npt.NDArray[np.intp]]:
        """Return each row's largest K-sigma, and the index of the axis or direction that reaches it."""
        projections = np.abs(np.hstack([z, z @ self.directions.T])) / self.spread
        best = projections.argmax(axis=1)
        return projections[np.arange(len(z)), best], best

    def split(self, z: Matrix, best: npt.NDArray[np.intp]) -> Matrix:
        """Return the share of each series in the deviation of each row along one axis or direction."""
        dimensions = z.shape[1]
        on_axis = best < dimensions
        weights = np.zeros(z.shape)
        weights[on_axis, best[on_axis]] = 1.0
        weights[~on_axis] = self.directions[best[~on_axis] - dimensions]
        return np.abs(z * weights)

    def simulate(self, draws: int, rng: np.random.Generator) -> LargestScore:
        """Return the distribution of `score` for samples of the fitted normal model.

        A sample is a random mixture of the reference rows plus independent noise, which has exactly the shrunk
        covariance. Along each of the B axes and directions it is a standard normal number. So the probability that
        the largest exceeds t is 2·B·Φ(-t) times the mean of 1 / (number of directions beyond t). The mean is over
        samples in which a randomly chosen direction is beyond t (Adler, Blanchet, Liu, Annals of Applied Probability
        2012). A few hundred such samples give the tail more precisely than ten thousand unconditional ones.
        """
        samples, dimensions = self.normal.shape
        count = len(self.spread)
        scale = np.float32(np.sqrt(self.shrink)) / self.spread.astype(np.float32)
        oblique = self.directions.T.astype(np.float32)
        model = np.sqrt((1 - self.shrink) / samples) * self.normal
        mixed = (np.hstack([model, model @ self.directions.T]) / self.spread).astype(np.float32)
        noise = rng.standard_normal((draws, dimensions), dtype=np.float32)
        projections = rng.standard_normal((draws, samples), dtype=np.float32) @ mixed
        projections += np.hstack([noise, noise @ oblique]) * scale
        chosen = rng.integers(count, size=draws)
        weights = np.zeros((draws, dimensions), dtype=np.float32)
        on_axis = chosen < dimensions
        weights[on_axis, chosen[on_axis]] = 1.0
        weights[~on_axis] = oblique.T[chosen[~on_axis] - dimensions]
        correlation = mixed[:, chosen].T @ mixed
        correlation += np.hstack([weights, weights @ oblique]) * scale * scale[chosen, None]
        sign, quantile = rng.choice([-1.0, 1.0], draws), rng.random(draws)
        reached = projections[np.arange(draws), chosen]
        ratios = np.empty(len(_KNOTS))
        for number, knot in enumerate(_KNOTS):
            target = sign * -ndtri_exp(np.log(quantile) + log_ndtr(-knot))
            shifted = projections + correlation * (target - reached).astype(np.float32)[:, None]
            hits = np.count_nonzero(np.abs(shifted, out=shifted) > knot, axis=1)
            ratios[number] = np.log((1 / np.maximum(hits, 1)).mean())
        return LargestScore(log_count=float(np.log(count)), log_ratios=ratios)


_KNOTS = np.array([0.0, 1.0, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 8.0])


@dataclass(frozen=True, kw_only=True)
class LargestScore:
    """Distribution of the largest |z| along axes and directions, for samples of the normal model."""

    log_count: float
    """Logarithm of the number of axes and directions."""
    log_ratios: Matrix
    """log(P(largest beyond t) / sum of P(each beyond t)) for each t of `_KNOTS`; constant after the last."""

    def equivalent_sigma(self, scores: Matrix) -> Matrix:
        """Return for each score the K that is equally rare in one dimension."""
        tail = self.log_count + log_ndtr(-scores) + np.interp(scores, _KNOTS, self.log_ratios)
        return np.maximum(-ndtri_exp(np.minimum(tail, -np.log(2.0))), 0.0)

    def limit(self, k: float, groups: int = 1) -> float:
        """Return the score that is as rare as K sigma, with the probability divided by `groups`."""
        grid = np.linspace(0.0, 4 * _KNOTS[-1], 6401)
        tail = self.log_count + log_ndtr(-grid) + np.interp(grid, _KNOTS, self.log_ratios)
        return float(grid[np.flatnonzero(tail > log_ndtr(-k) - np.log(groups))[-1]])


def _standardise(values: Matrix, center: Matrix, scale: Matrix, absent: npt.NDArray[np.bool_] | None = None) -> Matrix:
    return np.clip(deviations(values, center, scale, absent), -CLIP, CLIP)


def out_of_fold_maximum(
    reference: Matrix,
    directions: Matrix,
    *,
    shrink: float | None,
    robust: bool,
    folds: int = 4,
    floor: Matrix | float = 0.0,
) -> float:
    """Return the largest score of the reference, with each block scored by a model of the others; 0 if too short."""
    pieces = np.array_split(np.arange(len(reference)), folds)
    if min(len(piece) for piece in pieces) == 0:
        return 0.0
    worst = 0.0
    for piece in pieces:
        rest = np.setdiff1d(np.arange(len(reference)), piece)
        model = Projection.fit(reference[rest], directions, shrink=shrink, robust=robust, floor=floor)
        worst = max(worst, float(model.score(model.standardise(reference[piece]))[0].max()))
    return worst


_MAX_EVIDENCE = 5


@detector(
    "mksmc",
    title="MKSMC",
    paper="Cetin, Tasgin, UBMK 2020 (MKSMC); only the title is public",
    kind="named",
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

        def explain(row: int) -> list[Evidence]:
            columns, shares = groups[leading[row]], parts[leading[row]][2][row]
            order = [
                position for position in np.argsort(-shares, kind="stable")[:_MAX_EVIDENCE] if shares[position] > 0
            ]
            series = [windows.series[column] for column in columns]
            return series_evidence(series, shares, order, "share in the direction that deviates most, in sigmas")

        return Detection.from_scores(windows.times_ns, scores, threshold, evidence=explain)

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
