"""Localizers that follow anomalous calls from the front end: MicroHECL and MicroDig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline, largest_first
from faultset.baselines.features.calls import MEASURES, CallEdges, correlations, read_call_edges
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import Matrix
from faultset.datasets.views import EpisodeView

SIGMAS = 3.0
SIMILAR = 0.7
BACKWARD = 0.2
BETA = 0.1
WALK_STEPS = 50
Pair = tuple[str, str]


def follow_chains(
    start: str,
    pairs: Sequence[Pair],
    is_anomalous: Sequence[bool],
    similarity: Matrix,
    *,
    upwards: bool,
    similar: float,
) -> dict[str, int]:
    """Return the last service of each chain of anomalous calls from `start`, with the position of its last call.

    An anomalous call extends a chain if its series is similar to the series of the previous call. The first call of a
    chain may have any series.

    Parameters
    ----------
    similarity
        [E, E] |correlation| of the calls' series.
    upwards
        Whether to follow calls from the callee to its callers.

    Examples
    --------
    >>> pairs = [("front", "cart"), ("front", "ads"), ("cart", "db"), ("ads", "db")]
    >>> like = np.array([[1.0, 0.2, 0.9, 0.1], [0.2, 1.0, 0.1, 0.3], [0.9, 0.1, 1.0, 0.1], [0.1, 0.3, 0.1, 1.0]])
    >>> follow_chains("front", pairs, [True, True, True, True], like, upwards=False, similar=0.7)
    {'ads': 1, 'db': 2}
    """
    ends: dict[str, int] = {}
    visited: set[int] = set()
    queue: list[tuple[str, int | None]] = [(start, None)]
    while queue:
        service, last = queue.pop(0)
        following = [
            edge
            for edge, (caller, callee) in enumerate(pairs)
            if (callee if upwards else caller) == service
            and is_anomalous[edge]
            and edge not in visited
            and (last is None or similarity[last, edge] >= similar)
        ]
        visited.update(following)
        if not following and last is not None:
            ends.setdefault(service, last)
        queue += [(pairs[edge][0 if upwards else 1], edge) for edge in following]
    return dict(sorted(ends.items()))


def _correlate_columns(series: Matrix) -> Matrix:
    """Return |correlation| between all columns."""
    return np.abs(np.stack([correlations(series, column) for column in series.T])) if series.size else np.zeros((0, 0))


@localizer(
    "micro-hecl",
    title="MicroHECL",
    paper="Liu et al., MicroHECL, ICSE-SEIP 2021",
    tables=("spans",),
    requires=("spans",),
    complexity="O(N + E²·T)",
    departures=(
        "A call is anomalous beyond 3 sigma for three steps; the paper uses a one-class SVM for durations and a random "
        "forest, trained on labels, for errors.",
        "The business metric is the mean duration, error share or number of the front end's own calls.",
        "Chains of durations and errors lead to callees, chains of traffic to callers.",
    ),
)
class MicroHECL(TrainingFreeBaseline):
    """Follow chains of anomalous calls from the front end, and rank their ends by correlation with it.

    Parameters
    ----------
    similar
        Minimum |correlation| of two successive calls in a chain.

    References
    ----------
    Liu et al., MicroHECL: high-efficient root cause localization in large-scale microservice systems, ICSE-SEIP 2021,
    arXiv 2103.01782.
    """

    def __init__(self, *, sigmas: float = SIGMAS, similar: float = SIMILAR) -> None:
        self.sigmas = sigmas
        self.similar = similar

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        edges = read_call_edges(episode, alarm_ns)
        front = episode.context.workload_entry
        at_front = [edge for edge, pair in enumerate(edges.pairs) if front in pair]
        if not at_front or not edges.is_recent.any():
            return Ranking.abstain()
        rows = edges.is_healthy | edges.is_recent
        scores: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for measure in MEASURES:
            series = edges.standardise(measure)[rows]
            business_correlations = np.abs(correlations(series, series[:, at_front].mean(axis=1)))
            ends = follow_chains(
                front,
                edges.pairs,
                (edges.measure_lasting_deviations(measure) > self.sigmas).tolist(),
                _correlate_columns(series),
                upwards=measure == "calls",
                similar=self.similar,
            )
            for service, last in ends.items():
                if business_correlations[last] > scores.get(service, 0.0):
                    scores[service], reasons[service] = float(business_correlations[last]), measure
        if not scores:
            # No chain leaves the front end, so it is the only candidate.
            return Ranking.of({front: 1.0}, episode.services)
        evidence = [
            Evidence(service=name, subject=reasons[name], score=scores[name], detail="|correlation| with the front end")
            for name in largest_first(scores)[:10]
        ]
        return Ranking.of(scores, episode.services, evidence)


def weigh_shares(incoming: float, outgoing: float) -> float:
    """Return the weight of the step from a call to its two services, in MicroDig's graph.

    The weight is high if the call resembles calls to its caller more than calls of its callee.

    Parameters
    ----------
    incoming, outgoing
        Largest similarity to a call to the caller, and to a call of the callee; 0 if there is none.

    Examples
    --------
    >>> weigh_shares(0.9, 0.4), weigh_shares(0.0, 0.4), weigh_shares(0.9, 0.0), weigh_shares(0.0, 0.0)
    (0.5, 0.6, 0.9, 1.0)
    """
    if incoming == 0 and outgoing == 0:
        return 1.0
    if incoming == 0:
        return 1.0 - outgoing
    return max(0.0, incoming - outgoing)


def build_transitions(
    pairs: Sequence[Pair], similarity: Matrix, suspicion: Mapping[str, float], *, backward: float, beta: float
) -> tuple[Matrix, list[str]]:
    """Return MicroDig's transition matrix over calls and then services, and the services.

    Steps lead from a call to the calls of its callee, weighted by similarity, and back with `backward` times that
    weight. Steps also lead from a call to its caller and callee; the more suspicious of the two gets a share of
    0.5 + beta. The weight of staying at a service is its largest incoming weight. The walk ends at a row of zeros.

    Parameters
    ----------
    suspicion
        Service -> share of its calls that are anomalous.

    Examples
    --------
    >>> pairs, like = [("a", "b"), ("b", "c")], np.array([[1.0, 0.6], [0.6, 1.0]])
    >>> walk, services = build_transitions(pairs, like, {"a": 0.2, "b": 1.0, "c": 0.5}, backward=0.5, beta=0.1)
    >>> services, walk[0].round(3).tolist(), walk[1].round(3).tolist()
    (['a', 'b', 'c'], [0.0, 0.6, 0.16, 0.24, 0.0], [0.333, 0.0, 0.0, 0.4, 0.267])
    """
    services = sorted({name for pair in pairs for name in pair})
    position = {name: index for index, name in enumerate(services, start=len(pairs))}
    weights = np.zeros((len(pairs) + len(services),) * 2)
    for first, (_, middle) in enumerate(pairs):
        for second, (caller, _) in enumerate(pairs):
            if caller == middle and first != second:
                weights[first, second] = similarity[first, second]
    between_calls = weights[: len(pairs), : len(pairs)].copy()
    for edge, (caller, callee) in enumerate(pairs):
        total = weigh_shares(between_calls[:, edge].max(initial=0.0), between_calls[edge].max(initial=0.0))
        offset = beta if suspicion.get(caller, 0.0) > suspicion.get(callee, 0.0) else -beta
        weights[edge, position[caller]] = total * (0.5 + offset)
        weights[edge, position[callee]] = total * (0.5 - offset)
    weights += np.where(weights == 0, backward * weights.T, 0.0)
    for index in position.values():
        weights[index, index] = weights[:, index].max()
    row_totals = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, row_totals, out=np.zeros_like(weights), where=row_totals > 0), services


def expect_visits(walk: Matrix, start: Matrix, steps: int = WALK_STEPS) -> Matrix:
    """Return the expected share of visits to each state in a walk of `steps` steps.

    >>> expect_visits(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([1.0, 0.0])).tolist()
    [0.0, 1.0]
    """
    visits, share = np.zeros(len(start)), start
    for _ in range(steps):
        share = share @ walk
        visits += share
    return visits / max(float(visits.sum()), 1e-12)


@localizer(
    "micro-dig",
    title="MicroDig",
    paper="Tao et al., MicroDig, IEEE TSC 2024",
    tables=("spans",),
    requires=("spans",),
    complexity="O(N + E²·T + (E + services)²·steps)",
    departures=(
        "Calls are between services; the paper distinguishes methods and gives a service the score of its most "
        "suspicious method.",
        "A call is anomalous beyond 3 sigma for three steps; one sample suffices in the published code.",
        "The share of visits in 50 steps is computed instead of simulated.",
    ),
)
class MicroDig(TrainingFreeBaseline):
    """Walk over a graph of anomalous calls and their services, and rank services by visits.

    Parameters
    ----------
    backward
        Weight of steps against the direction of calls.
    beta
        Preference for the more suspicious of the two services of a call.

    References
    ----------
    Tao et al., Diagnosing performance issues for large-scale microservice systems with heterogeneous graph, IEEE
    Transactions on Services Computing 2024.
    """

    def __init__(self, *, sigmas: float = SIGMAS, backward: float = BACKWARD, beta: float = BETA) -> None:
        self.sigmas = sigmas
        self.backward = backward
        self.beta = beta

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        edges = read_call_edges(episode, alarm_ns)
        front = episode.context.workload_entry
        z = np.maximum(edges.measure_lasting_deviations("seconds"), edges.measure_lasting_deviations("errors"))
        pairs, columns = _find_connected(edges, z > self.sigmas, front)
        if not pairs:
            return Ranking.abstain()
        rows = edges.is_healthy | edges.is_recent
        similarity = np.maximum(
            *(_correlate_columns(edges.standardise(name)[rows][:, columns]) for name in ("seconds", "errors"))
        )
        walk, services = build_transitions(
            pairs, similarity, _compute_suspicion(edges, z > self.sigmas), backward=self.backward, beta=self.beta
        )
        start = np.zeros(len(walk))
        start[: len(pairs)] = [front in pair for pair in pairs]
        visits = expect_visits(walk, start / start.sum())
        scores = dict(zip(services, visits[len(pairs) :].tolist(), strict=True))
        evidence = [
            Evidence(
                service=callee, subject=f"calls of {caller}", score=float(z[column]), detail="sigmas for three steps"
            )
            for (caller, callee), column in sorted(zip(pairs, columns, strict=True), key=lambda item: -z[item[1]])[:10]
        ]
        return Ranking.of(scores, episode.services, evidence)


def _find_connected(edges: CallEdges, is_anomalous: np.ndarray, front: str) -> tuple[list[Pair], list[int]]:
    """Return the anomalous calls that chains of anomalous calls from the front end reach, and their columns."""
    columns = np.flatnonzero(is_anomalous).tolist()
    reached = {front}
    size = 0
    while len(reached) > size:
        size = len(reached)
        reached.update(name for column in columns for name in edges.pairs[column] if edges.pairs[column][0] in reached)
    chosen = [column for column in columns if reached.issuperset(edges.pairs[column])]
    return [edges.pairs[column] for column in chosen], chosen


def _compute_suspicion(edges: CallEdges, is_anomalous: np.ndarray) -> dict[str, float]:
    """Return the share of anomalous calls among each service's incoming and outgoing calls."""
    count: dict[str, list[bool]] = {}
    for pair, flag in zip(edges.pairs, is_anomalous.tolist(), strict=True):
        for name in pair:
            count.setdefault(name, []).append(flag)
    return {name: sum(flags) / len(flags) for name, flags in count.items()}
