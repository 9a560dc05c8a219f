"""TORAI: cluster services by how much each kind of telemetry changed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline, episode_rng
from faultset.baselines.features.calls import measure_latency, read_call_series
from faultset.baselines.features.log_lines import count_shapes
from faultset.baselines.features.metric_alarms import CLIP, standardise_windows
from faultset.baselines.features.windows import Windows, localization_windows, most_deviating
from faultset.baselines.methods.localization.causal_discovery import RUNS, FNodeTests, mean_reciprocal_ranks
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import Matrix, trusted_input
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView

MAX_CLUSTERS = 4
PER_SERVICE = 3
MODALITIES = ("metrics", "logs", "latency", "errors")


def measure_count_severity(reference: Matrix, values: Matrix) -> Matrix:
    """Return the largest |deviation| of counts in standard deviations.

    The standard deviation is at least 1 and at least that of a Poisson distribution.

    >>> measure_count_severity(np.array([[4.0, 0.0], [4.0, 0.0]]), np.array([[10.0, 3.0]]))
    array([3., 3.])
    """
    mean = reference.mean(axis=0)
    spread = np.maximum(np.maximum(reference.std(axis=0), np.sqrt(mean)), 1.0)
    return np.minimum(np.abs((values - mean) / spread).max(axis=0), CLIP)


def shares(severity: Matrix, owners: Sequence[str], services: Sequence[str], *, largest: bool = False) -> Matrix:
    """Return each service's share of the severity of all series, by the sum or by its largest series.

    >>> shares(np.array([3.0, 1.0, 4.0]), ["a", "a", "b"], ["a", "b"]).tolist()
    [0.5, 0.5]
    """
    total = np.zeros(len(services))
    position = {name: number for number, name in enumerate(services)}
    for owner, value in zip(owners, severity.tolist(), strict=True):
        if owner in position:
            row = position[owner]
            total[row] = max(total[row], value) if largest else total[row] + value
    return total / total.sum() if total.sum() > 0 else total


def find_clusters(points: Matrix, *, seed: int, max_clusters: int = MAX_CLUSTERS) -> npt.NDArray[np.int64]:
    """Return the cluster of each point by a Gaussian mixture with the best BIC."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    labels = np.zeros(len(points), dtype=np.int64)
    best = np.inf
    distinct = len(np.unique(points, axis=0))
    for size in range(1, min(max_clusters, distinct) + 1 if len(points) > 1 else 1):
        mixture = GaussianMixture(n_components=size, covariance_type="diag", max_iter=50, random_state=seed)
        with warnings.catch_warnings(), trusted_input():
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(points)
            criterion = mixture.bic(points)
            if criterion < best:
                best, labels = criterion, np.asarray(mixture.predict(points), dtype=np.int64)
    return labels


@localizer(
    "torai",
    title="TORAI",
    paper="Pham et al., TORAI, FSE 2026",
    tables=("metrics", "logs", "spans"),
    stochastic=True,
    speed="fast",
    complexity="O(S·T + L + N + R·V·2^c·T), L lines, N spans; RCD within clusters as in rcd",
    departures=(
        "The mixture has diagonal covariances and at most four clusters, because there are about 20 services.",
        "Log lines are grouped by how they begin.",
        "Deviations are clipped at 100 standard deviations; the standard deviation of a count is at least that of a "
        "Poisson distribution.",
        "RCD within a cluster uses the three metrics of each service that deviate most, on the episode's grid.",
    ),
)
class TORAI(TrainingFreeBaseline):
    """Rank services by their shares of the changes in metrics, logs, latencies and errors.

    Services are clustered by the four shares, and clusters are ordered by mean share. Within a cluster, RCD orders the
    services if it ranks all of them; otherwise their mean share does.

    References
    ----------
    Pham, Ha, Zhang, Zhang, TORAI: multi-source root cause analysis for blind spots in microservice service call
    graph, FSE 2026, and the code published with RCAEval 1.8.
    """

    def __init__(self, *, max_clusters: int = MAX_CLUSTERS, runs: int = RUNS, seed: int = 0) -> None:
        self.max_clusters = max_clusters
        self.runs = runs
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        services = sorted(episode.services)
        # Only the clusters and RCD depend on the seed.
        severity, evidence = episode.once(
            ("torai severity", alarm_ns), lambda: self._measure_severity(episode, alarm_ns, windows, services)
        )
        mean = severity.mean(axis=1)
        affected = [index for index in range(len(services)) if mean[index] > 0]
        if not affected:
            return Ranking.abstain()
        labels = find_clusters(severity[affected], seed=self.seed, max_clusters=self.max_clusters)
        members = [[affected[at] for at in np.flatnonzero(labels == label)] for label in np.unique(labels)]
        members.sort(key=lambda group: (-float(mean[group].mean()), group))
        order: list[int] = []
        for group in members:
            names = [services[index] for index in group]
            by_rcd = self._rank_by_rcd(episode, alarm_ns, windows, names) if len(group) > 1 else {}
            if len(by_rcd) == len(group):
                order += sorted(group, key=lambda index: (-by_rcd[services[index]], services[index]))
            else:
                order += sorted(group, key=lambda index: (-mean[index], services[index]))
        scores = {services[index]: float(len(order) - number) for number, index in enumerate(order)}
        return Ranking.of(scores, episode.services, evidence)

    def _measure_severity(
        self, episode: EpisodeView, alarm_ns: int, windows: Windows, services: Sequence[str]
    ) -> tuple[Matrix, list[Evidence]]:
        """Return each service's share of the change in each of `MODALITIES`, and the largest shares as evidence."""
        columns: list[Matrix] = []
        if windows.empty:
            columns.append(np.zeros(len(services)))
        else:
            columns.append(shares(np.abs(standardise_windows(windows)[1]).max(axis=0), windows.services, services))
        step_s = episode.context.resolution_s
        lines = count_shapes(episode, step_s)
        healthy, recent = _select_steps(lines.ends_ns, episode, alarm_ns, step_s)
        if healthy.any() and recent.any():
            severity = measure_count_severity(lines.counts[healthy], lines.counts[recent])
            columns.append(shares(severity, [service for service, _ in lines.shapes], services, largest=True))
        else:
            columns.append(np.zeros(len(services)))
        calls = read_call_series(episode)
        latency = measure_latency(episode, alarm_ns, calls) if calls.services else None
        slow = np.abs(latency.values).max(axis=0) if latency and latency.services else np.empty(0)
        columns.append(shares(slow, latency.services if latency else (), services))
        healthy, recent = _select_steps(calls.starts_ns + calls.step_ns, episode, alarm_ns, step_s)
        failed = np.empty(0)
        if healthy.any() and recent.any():
            failed = measure_count_severity(calls.errors[healthy], calls.errors[recent])
        columns.append(shares(failed, calls.services if len(failed) else (), services))
        evidence = [
            Evidence(service=service, subject=modality, score=float(share), detail="share of the change")
            for modality, column in zip(MODALITIES, columns, strict=True)
            for service, share in zip(services, column, strict=True)
            if share > 0
        ]
        evidence.sort(key=lambda item: (-item.score, item.service, item.subject))
        return np.column_stack(columns), evidence[:10]

    def _rank_by_rcd(
        self, episode: EpisodeView, alarm_ns: int, windows: Windows, services: Sequence[str]
    ) -> Mapping[str, float]:
        if windows.empty:
            return {}
        owners, tests = episode.once(("torai tests", alarm_ns), lambda: self._build_tests(episode, windows))
        columns = [column for column, owner in enumerate(owners) if owner in services]
        if not columns:
            return {}
        rng = episode_rng(self.seed, episode.episode)
        scores: dict[str, float] = {}
        for column, score in mean_reciprocal_ranks(tests, columns, rng, runs=self.runs).items():
            scores[owners[column]] = max(scores.get(owners[column], 0.0), score)
        return scores

    def _build_tests(self, episode: EpisodeView, windows: Windows) -> tuple[tuple[str, ...], FNodeTests]:
        """Return the service of each of the series that deviate most, and tests of these series."""
        healthy, recent = standardise_windows(windows)
        chosen = most_deviating(episode, windows, recent, per_service=PER_SERVICE)
        owners = tuple(windows.series[column][0] for column in chosen)
        return owners, FNodeTests(healthy[:, chosen], recent[:, chosen])


def _select_steps(
    ends_ns: npt.NDArray[np.int64], episode: EpisodeView, alarm_ns: int, step_s: float
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which steps are healthy, and which end later than two steps before the alarm."""
    before = alarm_ns - 2 * round(step_s * SECOND_NS)
    return ends_ns <= min(episode.reference[1], alarm_ns), ends_ns > before
