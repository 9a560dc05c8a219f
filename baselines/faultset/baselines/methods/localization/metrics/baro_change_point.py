"""BARO's first half: when the multivariate regime of latencies and errors changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Detection, Evidence, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.windows import Windows, detection_windows
from faultset.baselines.stats.change_points import HAZARD, RunLengths, run_lengths
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, with_metric_floor
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

ROLES = frozenset({"latency", "errors"})
MOST_COLUMNS = 48
CLIP = 2.0
SURE = 0.5


@baseline(
    "baro-change-point",
    title="BARO (change point)",
    task="detection",
    paper="Pham, Ha, Zhang, BARO, FSE 2024",
    kind="method",
    developed_on=OWN,
    tables=("metrics",),
    speed="instant",
    complexity="O(T·R·d²), R runs still possible ≤ T, d ≤ 48 columns",
    departures=(
        "Columns are scaled by their range within the reference; the published code uses the range of the whole series "
        "and so looks ahead.",
        "The score is the probability that a regime began after the reference; the published code takes any jump of "
        "the most likely run length, also one within the reference.",
        "Deviations are cut at two ranges, and beyond 48 columns of latency and errors each service has one.",
    ),
)
class BaroChangePoint(Untrained):
    """Detect when latencies and errors, taken together, have entered a new regime.

    Parameters
    ----------
    hazard
        Probability that a regime ends after any one sample.

    References
    ----------
    Pham, Ha, Zhang, BARO: robust root cause analysis for microservices via multivariate Bayesian online change
    point detection, FSE 2024; Adams, MacKay, Bayesian online changepoint detection, arXiv 0710.3742, 2007.
    """

    def __init__(self, *, hazard: float = HAZARD) -> None:
        self.hazard = hazard

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the probability of a regime that began since."""
        windows = detection_windows(episode)
        if windows.empty:
            return Detection.silent(SURE)
        runs, columns = self._runs(episode, windows)
        first = len(windows.reference)
        scores = runs.begun_since(first)[first:]
        found = Detection.from_scores(windows.times_ns, scores, SURE)
        if found.alarm_ns is None:
            return found
        since_s = (found.alarm_ns - change_of(runs, windows, found.alarm_ns)) / SECOND_NS
        detail = f"new regime since {since_s:g} s"
        evidence = tuple(
            Evidence(service=service, subject="latency and errors", score=score, detail=detail)
            for service, score in columns
        )
        return Detection.from_scores(windows.times_ns, scores, SURE, evidence=evidence[:5])

    def _runs(self, episode: EpisodeView, windows: Windows) -> tuple[RunLengths, list[tuple[str, float]]]:
        samples, owners = regime_columns(episode, windows)
        late = np.abs(samples[len(windows.reference) :]).max(axis=0)
        order = sorted(zip(owners, late.tolist(), strict=True), key=lambda item: (-item[1], item[0]))
        return run_lengths(samples, hazard=self.hazard), order


def regime_columns(episode: EpisodeView, windows: Windows) -> tuple[Matrix, list[str]]:
    """Latencies and errors of reference and test window, one below the other, in ranges of the reference.

    Without such metrics all are taken; where there are too many columns, each service has the mean of its
    deviations' sizes.
    """
    role = episode.catalogue.role_of
    named = [column for column, (_, metric) in enumerate(windows.series) if role(metric) in ROLES]
    chosen = named or list(range(len(windows.series)))
    mean, sd = mean_and_sd(windows.reference)
    scale = with_metric_floor(sd, windows.series)[chosen]
    healthy = np.where(np.isfinite(windows.reference), windows.reference, mean)[:, chosen]
    scale = np.maximum(np.ptp(healthy, axis=0), scale)
    since = deviations(windows.values[:, chosen], mean[chosen], scale, windows.absent[:, chosen])
    before = deviations(healthy, mean[chosen], scale, np.zeros(healthy.shape, dtype=bool))
    samples = np.clip(np.vstack([before, since]), -CLIP, CLIP)
    owners = [windows.series[column][0] for column in chosen]
    if len(chosen) <= MOST_COLUMNS:
        return samples, owners
    names = sorted(set(owners))
    code = np.searchsorted(names, owners)
    joined = np.stack([np.abs(samples[:, code == place]).mean(axis=1) for place in range(len(names))], axis=1)
    within = joined[: len(healthy)]
    spread = np.maximum(np.ptp(within, axis=0), 1 / len(healthy))
    return np.clip((joined - within.mean(axis=0)) / spread, -CLIP, CLIP), names


def change_of(runs: RunLengths, windows: Windows, alarm_ns: int) -> int:
    """Instant at which the most likely run of the alarm's sample began."""
    row = int(np.searchsorted(windows.times_ns, alarm_ns))
    sample = len(windows.reference) + row
    started = max(0, sample + 1 - int(runs.probability[sample, 1:].argmax() + 1) - len(windows.reference))
    return int(windows.times_ns[started]) - windows.step_ns
