"""Random walks on the call graph: MonitorRank and MicroRCA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline, largest_first
from faultset.baselines.features.calls import (
    FROM_SPANS,
    ServiceLatency,
    correlate_with_front,
    correlations,
    find_anomalous_services,
    measure_latency,
    read_call_graph,
    read_call_series,
)
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import deviations, mean_and_sd
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import networkx as nx

DAMPING = 0.85
BACKWARD = 0.2
ANOMALOUS_EDGE = 0.55
MIN_WEIGHT = 0.01
RESOURCES = frozenset({"cpu", "memory", "network"})


def build_walk(calls: tuple[tuple[str, str], ...], similarity: Mapping[str, float], *, backward: float) -> nx.DiGraph:
    """Return MonitorRank's graph with edges to callees, back to callers, and self-loops.

    >>> graph = build_walk((("front", "cart"),), {"front": 1.0, "cart": 0.5}, backward=0.2)
    >>> sorted((a, b, w) for a, b, w in graph.edges(data="weight"))
    [('cart', 'cart', 0.5), ('cart', 'front', 0.2), ('front', 'cart', 0.5), ('front', 'front', 0.5)]
    """
    import networkx as nx

    graph: nx.DiGraph = nx.DiGraph()
    nodes = sorted({*similarity, *(name for pair in calls for name in pair)})
    graph.add_nodes_from(nodes)
    best = dict.fromkeys(nodes, 0.0)
    for caller, callee in calls:
        strength = similarity.get(callee, 0.0)
        best[caller] = max(best[caller], strength)
        # A pair may call both ways; the larger weight counts.
        for start, end, weight in (
            (caller, callee, strength),
            (callee, caller, backward * similarity.get(caller, 0.0)),
        ):
            if weight > 0:
                earlier = graph.get_edge_data(start, end, {"weight": 0.0})["weight"]
                graph.add_edge(start, end, weight=max(weight, earlier))
    for name in nodes:
        rest = similarity.get(name, 0.0) - best[name]
        if rest > 0:
            graph.add_edge(name, name, weight=rest)
    return graph


def measure_visits(graph: nx.DiGraph, start: Mapping[str, float], *, damping: float = DAMPING) -> dict[str, float]:
    """Return the share of time that a walk with restarts spends at each node (personalised PageRank)."""
    import networkx as nx

    return nx.pagerank(graph, alpha=damping, personalization=dict(start), max_iter=500, weight="weight")


@localizer(
    "monitor-rank",
    title="MonitorRank",
    paper="Kim, Sumbaly, Shah, MonitorRank, SIGMETRICS 2013",
    tables=("spans", "metrics"),
    complexity="O(N + S·T + E·I), N spans, E calls, I iterations",
    departures=(
        *FROM_SPANS,
        "The similarity to the front end is the absolute correlation of latencies; the pseudo-anomaly clustering of "
        "external causes is left out.",
        "The share of visits is computed instead of simulated.",
    ),
)
class MonitorRank(TrainingFreeBaseline):
    """Rank services by visits of a random walk that prefers services similar to the front end.

    Parameters
    ----------
    damping
        Probability that the walk continues instead of restarting.
    backward
        Weight of steps from a callee to its caller, as a share of the caller's similarity.

    References
    ----------
    Kim, Sumbaly, Shah, Root cause detection in a service-oriented architecture, SIGMETRICS 2013.
    """

    def __init__(self, *, damping: float = DAMPING, backward: float = BACKWARD) -> None:
        self.damping = damping
        self.backward = backward

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        front = episode.context.workload_entry
        calls = read_call_series(episode)
        latency = measure_latency(episode, alarm_ns, calls)
        similarity = correlate_with_front(latency, front)
        start = {name: value for name, value in similarity.items() if name != front and value > 0}
        if not start:
            return Ranking.abstain()
        graph = build_walk(read_call_graph(episode, calls), similarity, backward=self.backward)
        scores = measure_visits(graph, start, damping=self.damping)
        evidence = [
            Evidence(
                service=name, subject="latency", score=start[name], detail="|correlation| with the front end's latency"
            )
            for name in largest_first(start)[:10]
        ]
        return Ranking.of(scores, episode.services, evidence)


@localizer(
    "micro-rca",
    title="MicroRCA",
    paper="Wu, Tordsson, Elmroth, Kao, MicroRCA, NOMS 2020",
    tables=("spans", "metrics"),
    complexity="O(N + S·T + E·I)",
    departures=(
        *FROM_SPANS,
        "A service is anomalous if its latency exceeds 3 sigma for three steps; the paper uses BIRCH clusters.",
        "Hosts are not nodes; resource metrics come from the service's containers.",
        "The walk goes from callers to callees; the public implementation reverses the edges.",
    ),
)
class MicroRCA(TrainingFreeBaseline):
    """Rank anomalous services and their neighbours by a random walk that restarts at anomalous services.

    The walk prefers to restart at services whose resources correlate with their latency.

    References
    ----------
    Wu, Tordsson, Elmroth, Kao, MicroRCA: root cause localization of performance issues in microservices, NOMS 2020.
    """

    def __init__(self, *, anomalous_edge: float = ANOMALOUS_EDGE, damping: float = DAMPING) -> None:
        self.anomalous_edge = anomalous_edge
        self.damping = damping

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        calls = read_call_series(episode)
        latency = measure_latency(episode, alarm_ns, calls)
        anomalous = find_anomalous_services(latency)
        if not anomalous:
            return Ranking.abstain()
        graph = self._build_graph(latency, read_call_graph(episode, calls), anomalous)
        resources, evidence = resource_correlations(localization_windows(episode, alarm_ns), episode, latency)
        start: dict[str, float] = {}
        for name in sorted(anomalous):
            weights = [weight for _, _, weight in graph.in_edges(name, data="weight")]
            weights += [weight for _, _, weight in graph.out_edges(name, data="weight")]
            mean = float(np.mean(weights)) if weights else self.anomalous_edge
            start[name] = mean * max(resources.get(name, 0.0), MIN_WEIGHT) / max(len(weights), 1)
        scores = measure_visits(graph, start, damping=self.damping)
        return Ranking.of(scores, episode.services, [item for item in evidence if item.service in anomalous][:10])

    def _build_graph(
        self, latency: ServiceLatency, calls: tuple[tuple[str, str], ...], anomalous: Mapping[str, float]
    ) -> nx.DiGraph:
        import networkx as nx

        graph: nx.DiGraph = nx.DiGraph()
        graph.add_nodes_from(sorted(anomalous))
        for caller, callee in calls:
            if callee in anomalous:
                graph.add_edge(caller, callee, weight=self.anomalous_edge)
            elif caller in anomalous:
                graph.add_edge(caller, callee, weight=_correlate_pair(latency, caller, callee))
        return graph


def _correlate_pair(latency: ServiceLatency, first: str, second: str) -> float:
    a, b = latency.column(first), latency.column(second)
    if a is None or b is None:
        return MIN_WEIGHT
    return max(MIN_WEIGHT, abs(float(correlations(a[:, None], b)[0])))


def resource_correlations(
    windows: Windows, episode: EpisodeView, latency: ServiceLatency
) -> tuple[dict[str, float], list[Evidence]]:
    """Return the largest |correlation| of each service's latency with its CPU, memory or network, and evidence."""
    if windows.empty or len(windows.reference) + len(windows.values) != len(latency.all):
        return {}, []
    role = episode.catalogue.role_of
    mean, sd = mean_and_sd(windows.reference)
    both = np.vstack([windows.reference, windows.values])
    both = deviations(both, mean, sd)
    best: dict[str, float] = {}
    evidence: list[Evidence] = []
    for service in latency.services:
        target = latency.column(service)
        columns = [
            index
            for index, (owner, metric) in enumerate(windows.series)
            if owner == service and role(metric) in RESOURCES
        ]
        if target is None or not columns:
            continue
        strength = np.abs(correlations(both[:, columns], target))
        top = int(strength.argmax())
        best[service] = float(strength[top])
        evidence.append(
            Evidence(
                service=service,
                subject=windows.series[columns[top]][1],
                score=best[service],
                detail="|correlation| with the service's latency",
            )
        )
    evidence.sort(key=lambda item: (-item.score, item.service))
    return best, evidence
