"""CIRCA on the call graph: rank series that deviate more than their causes explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from faultset.baselines.contract import Ranking, TrainingFreeBaseline
from faultset.baselines.features.calls import read_call_graph
from faultset.baselines.features.metric_alarms import CLIP, series_evidence, standardise_windows
from faultset.baselines.features.windows import localization_windows
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import ABSENT_Z, Matrix
from faultset.datasets.views import EpisodeView

THRESHOLD = 3.0
SPREAD_FLOOR = 0.1
SIGNALS: Mapping[str, str] = {
    "traffic": "traffic",
    "latency": "latency",
    "errors": "errors",
    **dict.fromkeys(
        ("cpu", "throttling", "memory", "network", "disk", "saturation", "threads", "descriptors"), "saturation"
    ),
}
"""Golden signal of each role; series of other roles have no causes."""
WITHIN = {
    "traffic": (),
    "saturation": ("traffic",),
    "latency": ("traffic", "saturation"),
    "errors": ("traffic", "saturation", "latency"),
}
"""Signal -> its causes in the same service."""

Node = tuple[str, str]
"""(service, signal)"""


def signal_parents(
    services: Sequence[str], calls: Sequence[tuple[str, str]], entry: str
) -> dict[Node, tuple[Node, ...]]:
    """Return the causes of each signal according to the call graph.

    Callers' traffic causes traffic; callees' latency and errors cause latency and errors. Within a service, traffic
    causes saturation, both cause latency, and all cause errors. Calls that close a cycle, as seen from the entry, are
    left out.

    >>> signal_parents(("a", "b"), [("a", "b")], "a")[("a", "latency")]
    (('a', 'saturation'), ('a', 'traffic'), ('b', 'latency'))
    """
    import networkx as nx

    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(sorted(services))
    distance = nx.single_source_shortest_path_length(nx.DiGraph([(entry, entry), *calls]), entry)
    for caller, callee in sorted(calls, key=lambda pair: (distance.get(pair[0], len(distance)), pair)):
        if caller in graph and callee in graph and not nx.has_path(graph, callee, caller):
            graph.add_edge(caller, callee)
    parents: dict[Node, tuple[Node, ...]] = {}
    for service in graph:
        for signal, causes_within in WITHIN.items():
            causes = [(service, other) for other in causes_within]
            if signal == "traffic":
                causes += [(caller, signal) for caller in graph.predecessors(service)]
            elif signal != "saturation":
                causes += [(callee, signal) for callee in graph.successors(service)]
            parents[service, signal] = tuple(sorted(causes))
    return parents


def measured_parents(parents: Mapping[Node, Sequence[Node]], measured: set[Node]) -> dict[Node, tuple[Node, ...]]:
    """Replace unmeasured parents with their nearest measured ancestors."""
    ancestors: dict[Node, tuple[Node, ...]] = {}

    def replace_unmeasured(node: Node) -> set[Node]:
        return {node} if node in measured else set(find_ancestors(node))

    def find_ancestors(node: Node) -> tuple[Node, ...]:
        if node not in ancestors:
            ancestors[node] = tuple(
                sorted(set().union(*(replace_unmeasured(parent) for parent in parents.get(node, ()))))
            )
        return ancestors[node]

    return {node: find_ancestors(node) for node in sorted(measured)}


def regression_scores(reference: Matrix, values: Matrix, reference_causes: Matrix, causes: Matrix) -> Matrix:
    """Return the largest |residual| of each series after regression on its causes.

    Residuals are divided by the unexplained share of the reference's standard deviation, which is limited to between
    `SPREAD_FLOOR` and 1.

    Parameters
    ----------
    reference, values
        [n, k] and [T, k] series as z-scores of the reference.
    reference_causes, causes
        [n, p] and [T, p]; ignored if there are too few samples for p causes.
    """
    n, p = reference_causes.shape
    if n < 2 * (p + 1):
        reference_causes, causes, p = reference_causes[:, :0], causes[:, :0], 0
    healthy_design = np.column_stack([np.ones(n), reference_causes])
    design = np.column_stack([np.ones(len(values)), causes])
    weights = np.linalg.lstsq(healthy_design, reference, rcond=None)[0]
    residual_spread = np.sqrt(((reference - healthy_design @ weights) ** 2).sum(axis=0) / max(1, n - p - 1))
    spread = np.sqrt(((reference - reference.mean(axis=0)) ** 2).sum(axis=0) / max(1, n - 1))
    unexplained = np.divide(residual_spread, spread, out=np.ones_like(spread), where=spread > 1e-9)
    return np.abs((values - design @ weights) / np.clip(unexplained, SPREAD_FLOOR, 1.0)).max(axis=0)


def compute_effect_scores(
    scores: Mapping[Node, float], parents: Mapping[Node, Sequence[Node]], *, threshold: float = THRESHOLD
) -> dict[Node, float]:
    """Return the amount to add to each score: for anomalous nodes the largest score of an effect, otherwise 0.

    If an effect is normal, the effects of this effect are searched too.
    """
    children: dict[Node, list[Node]] = {node: [] for node in scores}
    for node in scores:
        for parent in parents.get(node, ()):
            if parent in children:
                children[parent].append(node)
    largest_effects: dict[Node, float] = {}

    def find_largest_effect(node: Node) -> float:
        if node not in largest_effects:
            largest_effects[node] = 0.0
            largest = 0.0
            for child in children[node]:
                largest = max(largest, scores[child])
                if scores[child] < threshold:
                    largest = max(largest, find_largest_effect(child))
            largest_effects[node] = largest
        return largest_effects[node]

    return {node: find_largest_effect(node) if score >= threshold else 0.0 for node, score in scores.items()}


@localizer(
    "circa",
    title="CIRCA on the call graph",
    paper="Li et al., CIRCA, KDD 2022",
    tables=("metrics", "spans"),
    complexity="O(S·T·p + G·p²·T), G service signals with p causes each",
    departures=(
        "Causes are signals of a service (means of its series), not single series, because tens of samples do not "
        "suffice for a regression on many series.",
        "Series of state, restarts and unknown roles have no causes.",
        "Deviations count in both directions and are clipped at 100 standard deviations; the mean deviation of a "
        "service's series breaks ties.",
        "A residual's standard deviation is at least a tenth of the series'; calls that close a cycle are left out.",
    ),
)
class CIRCA(TrainingFreeBaseline):
    """Rank services by the series with the largest deviations that their causes in the call graph do not explain.

    References
    ----------
    Li et al., Causal inference-based root cause analysis for online service systems with intervention recognition,
    KDD 2022.
    """

    def __init__(self, *, threshold: float = THRESHOLD) -> None:
        self.threshold = threshold

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = localization_windows(episode, alarm_ns)
        if windows.empty:
            return Ranking.abstain()
        healthy, recent = standardise_windows(windows, stopped=False)
        parents = signal_parents(episode.services, read_call_graph(episode), episode.context.workload_entry)
        role = episode.catalogue.role_of
        members: dict[Node, list[int]] = {}
        for column, (service, metric) in enumerate(windows.series):
            members.setdefault((service, SIGNALS.get(role(metric), "state")), []).append(column)
        groups = {node: np.array(columns) for node, columns in members.items()}
        parents = measured_parents(parents, set(groups))
        score = _score_series(groups, parents, healthy, recent)
        score = np.maximum(score, np.where(windows.absent.any(axis=0), ABSENT_Z, 0.0))
        effect_scores = compute_effect_scores(
            {node: float(score[columns].max()) for node, columns in groups.items()}, parents, threshold=self.threshold
        )
        total = score.copy()
        for node, columns in groups.items():
            total[columns] += np.where(score[columns] >= self.threshold, effect_scores[node], 0.0)
        return _build_ranking(total, score, windows.series, episode.services)


def _score_series(
    groups: Mapping[Node, npt.NDArray[np.int64]],
    parents: Mapping[Node, Sequence[Node]],
    healthy: Matrix,
    recent: Matrix,
) -> Matrix:
    means = {
        node: (healthy[:, columns].mean(axis=1), recent[:, columns].mean(axis=1)) for node, columns in groups.items()
    }
    score = np.zeros(healthy.shape[1])
    for node, columns in groups.items():
        causes = [means[parent] for parent in parents[node]]
        healthy_causes = np.column_stack([cause for cause, _ in causes]) if causes else healthy[:, :0]
        recent_causes = np.column_stack([cause for _, cause in causes]) if causes else recent[:, :0]
        score[columns] = np.minimum(
            regression_scores(healthy[:, columns], recent[:, columns], healthy_causes, recent_causes), CLIP
        )
    return score


def _build_ranking(
    total: Matrix, score: Matrix, series: tuple[tuple[str, str], ...], services: tuple[str, ...]
) -> Ranking:
    owner = np.array([service for service, _ in series])
    scores = {
        service: float(total[owner == service].max() + score[owner == service].mean() / CLIP)
        for service in services
        if (owner == service).any()
    }
    order = sorted(range(len(series)), key=lambda column: (-total[column], series[column]))
    evidence = series_evidence(series, score, order[:10], "largest residual, in sigmas")
    return Ranking.of(scores, services, evidence, {series[column]: float(total[column]) for column in order})
