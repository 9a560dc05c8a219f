"""Bayesian online change point detection: how probable it is that a stream's present run began lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from faultset.baselines.api.contract import Detection, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import read_held_out
from faultset.baselines.features.role_streams import service_roles
from faultset.baselines.stats.limits import reference_limit
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

EXPECTED_RUN = 250.0
LONGEST = 60
RECENT = 5
LEAST_SPREAD = 0.1
_CERTAIN = 1e-12
_NEVER = 1e-300


def run_lengths(
    streams: Matrix,
    starts: Sequence[int],
    *,
    expected_run: float = EXPECTED_RUN,
    known: float = 2.0,
    longest: int = LONGEST,
) -> Matrix:
    """Posterior of the run length of each group of streams after each sample.

    Within a run each stream is normal with unknown mean and variance, whose prior is normal-gamma around 0 and 1;
    the streams of a group change together, and the hazard is constant. A stream has no say as long as it is 0.

    Parameters
    ----------
    streams
        [T, p] standardised, those of a group side by side.
    starts
        First column of each of the g groups.
    expected_run
        Mean samples between changes.
    known
        Samples that the prior of the variance is worth.
    longest
        Runs of so many samples and more are one, and are judged by their last samples.

    Returns
    -------
    ndarray
        [T, g, longest + 1]; entry r is the probability that the last r samples belong to the present run.
    """
    steps, count = streams.shape
    hazard = 1 / expected_run
    lengths = np.arange(longest + 1)
    kappa, alpha = 1.0 + lengths, (known + lengths) / 2
    widening = (kappa + 1) / (kappa * alpha)
    constant = gammaln(alpha + 0.5) - gammaln(alpha) - 0.5 * np.log(2 * np.pi * alpha)
    mean = np.zeros((count, longest + 1))
    beta = np.full((count, longest + 1), known / 2)
    belief = np.zeros((len(starts), longest + 1))
    belief[:, 0] = 1.0
    moved = np.maximum.accumulate(streams != 0, axis=0)
    posterior = np.empty((steps, len(starts), longest + 1))
    for step, values in enumerate(streams):
        off = values[:, None] - mean
        variance = beta * widening
        density = constant - 0.5 * np.log(variance) - (alpha + 0.5) * np.log1p(off**2 / (2 * alpha * variance))
        joint = np.log(np.maximum(belief, _NEVER)) + np.add.reduceat(density * moved[step][:, None], starts, axis=0)
        joint = np.exp(joint - joint.max(axis=1, keepdims=True))
        grown = joint * ((1 - hazard) / joint.sum(axis=1, keepdims=True))
        belief[:, 0] = hazard
        belief[:, 1:] = grown[:, :-1]
        belief[:, -1] += grown[:, -1]
        posterior[step] = belief
        mean, beta = (
            _shifted(mean + off / (kappa + 1), 0.0),
            _shifted(beta + kappa * off**2 / (2 * (kappa + 1)), known / 2),
        )
    return posterior


def _shifted(statistics: Matrix, prior: float) -> Matrix:
    """Statistics of runs that are one sample longer; a new run has those of the prior."""
    return np.hstack([np.full((len(statistics), 1), prior), statistics[:, :-1]])


def recent_change(posterior: Matrix, recent: int = RECENT) -> Matrix:
    """Log odds, in powers of ten, that the run of the last sample began within the last `recent` samples."""
    known = posterior[..., 1:]
    probability = (known[..., :recent].sum(axis=-1) / known.sum(axis=-1)).clip(_CERTAIN, 1 - _CERTAIN)
    return np.log10(probability / (1 - probability))


@baseline(
    "bocpd",
    title="Bayesian online change points",
    task="detection",
    paper="Adams, MacKay, arXiv 0710.3742; Pham, Ha, Zhang, BARO, FSE 2024",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(S·T + p·T·R)",
    departures=(
        "Looks at log(1 + largest |z| that lasts for two samples) of each role of each service; the roles of a service "
        "change together, where BARO has one model of all metrics.",
        "Streams are standardised by the reference alone, where BARO uses the whole window and so looks ahead.",
        "The variance has a prior worth as many samples as the reference has: else a few quiet ones would be a change.",
        "Runs of sixty samples and more are one.",
        "The score is the largest log odds of a change within five samples, for two samples in a row, and stays at the "
        "largest so far; its threshold is even odds, or what the reference reaches where that is more.",
    ),
)
class BOCPDDetector(Untrained):
    """Detect the beginning of a new run in the streams of some service.

    Parameters
    ----------
    expected_run
        Mean samples between changes when nothing is wrong.

    References
    ----------
    Adams, MacKay, Bayesian Online Changepoint Detection, 2007; Pham, Ha, Zhang, BARO: Robust Root Cause Analysis for
    Microservices via Multivariate Bayesian Online Change Point Detection, FSE 2024.
    """

    def __init__(self, *, expected_run: float = EXPECTED_RUN) -> None:
        self.expected_run = expected_run

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the odds of a recent change."""
        found = read_held_out(episode)
        if found is None:
            return Detection.silent()
        streams = service_roles(episode, found.lasting)
        center, spread = streams.normal.mean(axis=0), np.maximum(streams.normal.std(axis=0), LEAST_SPREAD)
        owners = [service for service, _ in streams.names]
        starts = [column for column, owner in enumerate(owners) if column == 0 or owners[column - 1] != owner]
        posterior = run_lengths(
            (streams.both - center) / spread, starts, expected_run=self.expected_run, known=len(streams.normal)
        )
        moved = np.logical_or.reduceat(np.maximum.accumulate(streams.both != 0, axis=0), starts, axis=1)
        odds = np.where(moved, recent_change(posterior), np.log10(_CERTAIN)).max(axis=1)
        healthy = len(streams.normal)
        # At first every run is recent.
        limit = reference_limit(odds[2 * RECENT : healthy])
        # A change that was found stays found, though its run grows old; a spike alone must not stay.
        lasting = np.minimum(odds[healthy:], np.concatenate([odds[healthy : healthy + 1], odds[healthy:-1]]))
        return found.detection(np.maximum.accumulate(lasting), limit, consecutive=1)
