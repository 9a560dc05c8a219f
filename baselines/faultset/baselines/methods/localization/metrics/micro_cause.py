"""MicroCause: a walk over a learnt graph of delayed causes, from the front end towards what moves with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.healthy_spreads import healthy_spreads
from faultset.baselines.features.series_selection import most_deviating
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.stats.independence_tests import partial_correlation
from faultset.baselines.stats.lagged_links import LaggedLinks, lagged_links
from faultset.baselines.stats.limits import bonferroni_sigmas
from faultset.baselines.stats.scaling import Matrix, sustained

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

PER_SERVICE = 2
LAGS = 3
BACKWARD = 0.2
SHARE = 0.5
STEPS = 1000
SUSTAINED = 3
FRONT_ROLES = ("latency", "errors")


def transition_matrix(links: LaggedLinks, strength: Matrix, front: int, *, backward: float = BACKWARD) -> Matrix:
    """[k, k] probabilities of going from row to column.

    From an effect to its causes by their strength, back to effects at a share of theirs, and on the spot where no
    cause is as strong; the walk never rests at the front end if it can leave. A series without neighbours is left
    for nowhere.
    """
    count = len(strength)
    weight = np.zeros((count, count))
    best = np.zeros(count)
    for cause, effect in sorted(links.links):
        weight[effect, cause] = max(weight[effect, cause], strength[cause])
        weight[cause, effect] = max(weight[cause, effect], backward * strength[effect])
        best[effect] = max(best[effect], strength[cause])
    rest = np.maximum(0.0, strength - best)
    rest[front] = 0.0
    weight[np.arange(count), np.arange(count)] = rest
    total = weight.sum(axis=1)
    weight[total <= 0, :] = np.eye(count)[total <= 0]
    return weight / weight.sum(axis=1, keepdims=True)


def expected_visits(transitions: Matrix, front: int, *, steps: int = STEPS) -> Matrix:
    """[k] expected number of visits of a walk of some steps that begins at the front end, which does not count."""
    here = np.zeros(len(transitions))
    here[front] = 1.0
    total = np.zeros(len(transitions))
    for _ in range(steps):
        here = here @ transitions
        total += here
    return total


@baseline(
    "micro-cause",
    title="MicroCause",
    task="localization",
    paper="Meng et al., MicroCause, IWQoS 2020",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics",),
    speed="fast",
    complexity="O(V²·L·T + V²·c²·T), V ≤ 2 series per service, L lags, c ≤ 6 conditions",
    departures=(
        "Only the two series of each service that deviate most take part, each of another role; the paper ranks series "
        "within one service.",
        "Delays are at most three steps of the episode's grid, and a series has at most three causes to condition on.",
        "Links within one step are followed both ways, since calls take less time than a step.",
        "The degree of anomaly is the excess over the limit of k-sigma, at a hundred healthy spreads at most: samples "
        "are too few for SPOT.",
        "Visits are expected values of a walk of 1000 steps and not simulated.",
    ),
)
class MicroCause(Untrained):
    """Rank series by how often a walk from the front end comes by, and by how anomalous they are.

    Parameters
    ----------
    share
        Weight of visits against the degree of anomaly.
    backward
        Weight of going from a cause to its effect, as a share of the effect's strength.

    References
    ----------
    Meng et al., Localizing failure root causes in a microservice through causality inference, IWQoS 2020.
    """

    def __init__(self, *, per_service: int = PER_SERVICE, share: float = SHARE, backward: float = BACKWARD) -> None:
        self.per_service = per_service
        self.share = share
        self.backward = backward

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by their highest series."""
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        healthy, since = healthy_spreads(windows)
        columns = most_deviating(episode, windows, since, per_service=self.per_service)
        front_column = front_series(episode, windows, since)
        if front_column is None:
            return Ranking.abstain()
        columns = sorted({*columns, front_column})
        front = columns.index(front_column)
        series = np.vstack([healthy, since])[:, columns]
        found = lagged_links(series, lags=LAGS)
        strength = front_strength(series, found, front)
        visits = expected_visits(transition_matrix(found, strength, front, backward=self.backward), front)
        visits[front] = 0.0
        limit = bonferroni_sigmas(len(windows.series), samples=len(windows.reference))
        lasting = sustained(since[:, columns], min(SUSTAINED, len(since))).max(axis=0)
        excess = np.maximum(0.0, lasting / limit - 1)
        score = self.share * _of_largest(visits) + (1 - self.share) * _of_largest(excess)
        metrics = {windows.series[column]: float(score[place]) for place, column in enumerate(columns)}
        scores: dict[str, float] = {}
        for (service, _), value in metrics.items():
            scores[service] = max(scores.get(service, 0.0), value)
        order = sorted(range(len(columns)), key=lambda place: (-score[place], windows.series[columns[place]]))
        evidence = [
            Evidence(
                service=windows.series[columns[place]][0],
                subject=windows.series[columns[place]][1],
                score=float(score[place]),
                detail=f"{visits[place]:.0f} visits, {lasting[place]:.1f} sigmas",
            )
            for place in order[:10]
        ]
        return Ranking.of(scores, episode.services, evidence, metrics)


def front_series(episode: EpisodeView, windows: Windows, since: Matrix) -> int | None:
    """Column of the front end's latency, else of its errors, that moves most; None where neither moves."""
    size = np.abs(since).max(axis=0)
    for role in FRONT_ROLES:
        own = [
            column
            for column, (service, metric) in enumerate(windows.series)
            if service == episode.context.workload_entry and episode.catalogue.role_of(metric) == role
        ]
        if own and size[own].max() > 0:
            return max(own, key=lambda column: (size[column], -column))
    return None


def front_strength(series: Matrix, links: LaggedLinks, front: int) -> Matrix:
    """[k] |partial correlation| of each series with the front end's, given the delayed causes of both."""
    earliest = max([lag for causes in links.causes for _, lag in causes], default=0)
    strength = np.zeros(series.shape[1])
    for place in range(series.shape[1]):
        given = sorted({*links.causes[front], *links.causes[place]})
        conditions = [series[earliest - lag : len(series) - lag, other] for other, lag in given]
        matrix = np.column_stack(conditions) if conditions else np.empty((len(series) - earliest, 0))
        if matrix.shape[1] + 3 < len(matrix):
            strength[place] = abs(partial_correlation(series[earliest:, place], series[earliest:, front], matrix))
    strength[front] = 0.0
    return strength


def _of_largest(values: Matrix) -> Matrix:
    return values / values.max() if values.max(initial=0.0) > 0 else np.zeros_like(values)
