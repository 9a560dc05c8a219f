"""Localizers trained on labelled episodes: boosted trees, and a graph network on metrics, logs and traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from faultset.baselines.contract import Evidence, Labelled, Ranking, RegisteredBaseline
from faultset.baselines.features.calls import read_call_graph
from faultset.baselines.features.log_lines import error_line_excess, select_error_lines
from faultset.baselines.features.spans import read_spans
from faultset.baselines.features.windows import cut_window_after, localization_windows
from faultset.baselines.networks import (
    EXTRA,
    Parameters,
    dense,
    dense_parameters,
    log_softmax,
    sigmoid,
    softmax,
    train,
)
from faultset.baselines.registry import SAMPLE, localizer
from faultset.baselines.stats.scaling import Matrix, deviations, median_and_mad, with_metric_floor
from faultset.datasets.metrics.roles import ROLES
from faultset.datasets.views import EpisodeView

MAX_Z = 50.0
TABLES_READ = ("metrics", "logs", "spans")
_FEATURES = (
    *ROLES,
    "stopped series",
    "error lines",
    "failed calls to it",
    "unanswered calls to it",
    "slower calls to it",
    "more calls to it",
)
NAMES = (*_FEATURES, *(f"{name}, share of the largest" for name in _FEATURES))
"""Feature names: the features of a service, and their ratios to the largest over all services."""


@dataclass(frozen=True, kw_only=True)
class ServiceSignatures:
    """Features of each candidate."""

    services: tuple[str, ...]
    rows: Matrix
    """[V, len(NAMES)]"""


def describe_services(episode: EpisodeView, alarm_ns: int) -> ServiceSignatures | None:
    """Return how each candidate has differed from its reference since the alarm; None without telemetry."""
    services = tuple(sorted(episode.services))
    features = np.zeros((len(services), len(_FEATURES)))
    has_data = [fill(episode, alarm_ns, services, features) for fill in (_fill_metrics, _fill_logs, _fill_calls)]
    if not any(has_data):
        return None
    largest = np.abs(features).max(axis=0, initial=0.0)
    shares = np.divide(features, largest, out=np.zeros_like(features), where=largest > 0)
    return ServiceSignatures(services=services, rows=np.hstack([features, shares]))


def _fill_metrics(episode: EpisodeView, alarm_ns: int, services: tuple[str, ...], features: Matrix) -> bool:
    """Fill in the largest signed log deviation of each role, and the share of stopped series."""
    windows = localization_windows(episode, alarm_ns)
    if windows.empty:
        return False
    center, spread = median_and_mad(windows.reference)
    z = deviations(windows.values, center, with_metric_floor(spread, windows.series))
    is_gone = windows.absent.mean(axis=0) > 0.5
    level = np.clip(np.where(is_gone, 0.0, np.median(z, axis=0)), -MAX_Z, MAX_Z)
    owner = np.array([services.index(service) for service in windows.services])
    role_of = episode.catalogue.role_of
    role = np.array([ROLES.index(role_of(metric)) for _, metric in windows.series])
    order = np.argsort(np.abs(level), kind="stable")
    features[owner[order], role[order]] = np.sign(level[order]) * np.log1p(np.abs(level[order]))
    count = np.bincount(owner, minlength=len(services))
    features[:, _FEATURES.index("stopped series")] = np.bincount(owner, is_gone, len(services)) / np.maximum(count, 1)
    return True


def _fill_logs(episode: EpisodeView, alarm_ns: int, services: tuple[str, ...], features: Matrix) -> bool:
    lines = select_error_lines(episode)
    excess = error_line_excess(lines, cut_window_after(episode, alarm_ns, episode.context.resolution_s))
    column = _FEATURES.index("error lines")
    for index, service in enumerate(services):
        features[index, column] = np.log1p(max(0.0, excess.get(service, 0.0)))
    return len(lines) > 0


def _fill_calls(episode: EpisodeView, alarm_ns: int, services: tuple[str, ...], features: Matrix) -> bool:
    """Fill in changes in the failures, missing responses, duration and number of calls to each service."""
    spans = read_spans(episode)
    calls = spans.calls
    healthy_end_ns = min(episode.reference[1], alarm_ns)
    is_healthy = spans.end_ns[calls.row] < healthy_end_ns
    is_recent = spans.start_ns[calls.row] >= alarm_ns
    if not is_healthy.any() or not is_recent.any():
        return False
    times = np.log10(np.maximum(spans.duration_ns[calls.row], 1.0))
    measures = {
        "failed calls to it": spans.error[calls.row].astype(float),
        "unanswered calls to it": (spans.service[calls.row] != calls.callee).astype(float),
        "slower calls to it": times,
    }
    lengths = (healthy_end_ns - episode.window[0], max(1, episode.window[1] - alarm_ns))
    counts = [
        np.bincount(calls.callee[is_selected], minlength=len(spans.names)) for is_selected in (is_healthy, is_recent)
    ]
    for code, name in enumerate(spans.names):
        if name not in services or not counts[0][code]:
            continue
        row = services.index(name)
        rates = [(count[code] + 0.5) / length for count, length in zip(counts, lengths, strict=True)]
        features[row, _FEATURES.index("more calls to it")] = np.log(rates[1] / rates[0])
        called = calls.callee == code
        for measure, values in measures.items():
            if (called & is_recent).any():
                change = values[called & is_recent].mean() - values[called & is_healthy].mean()
                features[row, _FEATURES.index(measure)] = change
    return True


_MAX_EVIDENCE = 5


def _rank_by_shares(episode: EpisodeView, services: tuple[str, ...], rows: Matrix, shares: Matrix) -> Ranking:
    """Rank services by their shares, with the largest features of the first service as evidence."""
    best = int(shares.argmax())
    order = np.argsort(-np.abs(rows[best]), kind="stable")[:_MAX_EVIDENCE].tolist()
    evidence = [
        Evidence(service=services[best], subject=NAMES[index], score=float(rows[best, index]))
        for index in order
        if rows[best, index]
    ]
    return Ranking.of(dict(zip(services, shares.tolist(), strict=True)), episode.services, evidence)


@localizer(
    "boosted-ranker",
    title="Gradient-boosted ranker on service signatures",
    paper="Friedman, Annals of Statistics 2001; Burges, MSR-TR-2010-82; the features are our own",
    kind="own",
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    complexity="O(S·T + L + N), and the same for each training episode",
    departures=(
        "Pointwise: each service of a training fault is a row, faulty or not, instead of pairs of a list.",
        "In training, the alarm is at the onset.",
    ),
    developed_on=(SAMPLE,),
)
class BoostedRanker(RegisteredBaseline):
    """Rank services by their probability of being faulty, estimated by gradient-boosted trees.

    It does not use names of services, so it can locate faults in services that were never faulty in training.

    Parameters
    ----------
    rounds
        Number of trees.
    leaves
        Maximum number of leaves per tree.
    seed
        Seed of the trees.

    References
    ----------
    Friedman, Greedy Function Approximation: A Gradient Boosting Machine, Annals of Statistics 2001; Burges, From
    RankNet to LambdaRank to LambdaMART: An Overview, MSR-TR-2010-82.
    """

    def __init__(self, *, rounds: int = 60, leaves: int = 6, seed: int = 0) -> None:
        self.rounds, self.leaves, self.seed = rounds, leaves, seed
        self.model_: Any = None

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn from the services of training faults; if there are none, `localize` abstains."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        rows, at_fault = [], []
        for item in training:
            if not item.causes:
                continue
            onset_ns = item.onset_ns if item.onset_ns is not None else item.view.reference[1]
            signatures = describe_services(item.view, onset_ns)
            if signatures is not None:
                rows.append(signatures.rows)
                at_fault += [service in item.causes for service in signatures.services]
        self.model_ = None
        if len(set(at_fault)) == 2:
            early_stopping: Any = False
            model = HistGradientBoostingClassifier(
                max_iter=self.rounds,
                max_leaf_nodes=self.leaves,
                min_samples_leaf=3,
                l2_regularization=1.0,
                class_weight="balanced",
                early_stopping=early_stopping,
                random_state=self.seed,
            )
            self.model_ = model.fit(np.concatenate(rows), at_fault)
        return self

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        model = self.model_
        signatures = None if model is None else describe_services(episode, alarm_ns)
        if model is None or signatures is None or not signatures.rows.any():
            return Ranking.abstain()
        shares = model.predict_proba(signatures.rows)[:, 1]
        return _rank_by_shares(episode, signatures.services, signatures.rows, shares)


UPDATES = 300
BATCH = 16
_MASKED = -1e9
SOURCES = {
    "logs": [index for index, name in enumerate(NAMES) if name.startswith("error lines")],
    "traces": [index for index, name in enumerate(NAMES) if "calls to it" in name],
}
SOURCES["metrics"] = [index for index in range(len(NAMES)) if index not in SOURCES["logs"] + SOURCES["traces"]]
_SHARED_DEPARTURES = (
    "Node features are deviations from the reference by role, log severity and call. They replace raw windows, Hawkes "
    "intensities of log events and trace latencies, because convolutions need more than tens of samples.",
    "The network has one attention head over callers and callees. It only localizes: the alarm comes from a detector.",
    "In training, the alarm is at the onset.",
)


def compute_suspicion(xp: Any, parameters: Parameters, rows: Any, adjacency: Any, present: Any) -> Any:
    """Return the logarithm of each service's share of the suspicion, as [B, V].

    Parameters
    ----------
    rows
        [B, V, F] signatures.
    adjacency
        [B, V, V] 1 for neighbours and for each service itself, otherwise 0.
    present
        [B, V] 1 for services, 0 for padding.
    """
    parts = [
        xp.tanh(dense(xp, parameters[name], rows[..., np.array(columns)])) for name, columns in sorted(SOURCES.items())
    ]
    fused = xp.concatenate(parts, axis=-1)
    fused = dense(xp, parameters["value"], fused) * sigmoid(xp, dense(xp, parameters["gate"], fused))
    messages = fused @ parameters["graph"]
    weight = (messages @ parameters["from"])[..., None, :] + (messages @ parameters["to"])[..., :, None]
    weight = xp.where(adjacency > 0, xp.where(weight > 0, weight, 0.2 * weight), _MASKED)
    neighbourhood = xp.tanh(softmax(xp, weight) @ messages)
    score = dense(xp, parameters["output"], xp.concatenate([fused, neighbourhood], axis=-1))[..., 0]
    return log_softmax(xp, xp.where(present > 0, score, _MASKED))


def cross_entropy(xp: Any, parameters: Parameters, batch: tuple[Any, ...], _: Any) -> Any:
    """Return the mean cross entropy of the faulty services."""
    rows, adjacency, present, at_fault = batch
    return -(at_fault * compute_suspicion(xp, parameters, rows, adjacency, present)).sum(axis=-1).mean()


@localizer(
    "eadro",
    title="Graph attention on three sources (Eadro-like)",
    paper="Lee, Yang, Chen, Su, Lyu, Eadro, ICSE 2023",
    kind="own",
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    speed="fast",
    complexity="O(S·T + L + N + V²·h), and the same for each training episode; a fit O(updates·V²·h)",
    departures=(*_SHARED_DEPARTURES, "The network is trained by Adam with weight decay for a fixed number of updates."),
    developed_on=(SAMPLE,),
    extra=EXTRA,
)
class Eadro(RegisteredBaseline):
    """Rank services by a graph attention network on metrics, logs and traces, trained on faults.

    It does not use names of services, so it can locate faults in services that were never faulty in training.

    Parameters
    ----------
    updates
        Steps of the optimizer; 0 for random weights.
    hidden
        Units per source.
    seed
        Seed of the weights and of the order of episodes.

    References
    ----------
    Lee, Yang, Chen, Su, Lyu, Eadro: An End-to-End Troubleshooting Framework for Microservices on Multi-source Data,
    ICSE 2023.
    """

    def __init__(self, *, updates: int = UPDATES, hidden: int = 8, seed: int = 0) -> None:
        self.updates, self.hidden, self.seed = updates, hidden, seed
        self.model_: Parameters | None = None

    def fit(self, training: Sequence[Labelled]) -> Self:
        """Learn from training faults; if there are none, `localize` abstains."""
        graphs = []
        for item in training:
            onset_ns = item.onset_ns if item.onset_ns is not None else item.view.reference[1]
            graph = build_graph(item.view, onset_ns) if item.causes else None
            at_fault = None if graph is None else np.array([s in item.causes for s in graph[0]], dtype=float)
            if graph is not None and at_fault is not None and at_fault.any():
                graphs.append((*graph[1:], np.ones(len(at_fault)), at_fault / at_fault.sum()))
        self.model_ = None
        if graphs:
            self.model_ = self._draw_parameters()
            if self.updates:
                self.model_ = train(
                    self.model_,
                    [(cross_entropy, tuple(self.model_))],
                    pad_graphs(graphs),
                    updates=self.updates,
                    batch=BATCH,
                    seed=self.seed,
                    decay=1e-2,
                )
        return self

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        graph = None if self.model_ is None else build_graph(episode, alarm_ns)
        if self.model_ is None or graph is None or not graph[1].any():
            return Ranking.abstain()
        services, rows, adjacency = graph
        shares = np.exp(compute_suspicion(np, self.model_, rows[None], adjacency[None], np.ones((1, len(rows))))[0])
        return _rank_by_shares(episode, services, rows, shares)

    def _draw_parameters(self) -> Parameters:
        rng, width = np.random.default_rng(self.seed), 3 * self.hidden
        bound = np.sqrt(3.0 / width)
        return {
            **{name: dense_parameters(rng, len(columns), self.hidden) for name, columns in sorted(SOURCES.items())},
            "value": dense_parameters(rng, width, width),
            "gate": dense_parameters(rng, width, width),
            "graph": rng.uniform(-bound, bound, (width, width)),
            "from": rng.uniform(-bound, bound, width),
            "to": rng.uniform(-bound, bound, width),
            "output": dense_parameters(rng, 2 * width, 1),
        }


@localizer(
    "untrained-eadro",
    title="Untrained graph attention",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    speed="fast",
    complexity="O(S·T + L + N + V²·h)",
    departures=_SHARED_DEPARTURES,
    developed_on=(SAMPLE,),
    extra=EXTRA,
)
class UntrainedEadro(Eadro):
    """Control: the graph network with random weights.

    References
    ----------
    Kim, Choi, Choi, Lee, Yoon, Towards a Rigorous Evaluation of Time-Series Anomaly Detection, AAAI 2022.
    """

    def __init__(self, *, hidden: int = 8, seed: int = 0) -> None:
        super().__init__(updates=0, hidden=hidden, seed=seed)


def build_graph(episode: EpisodeView, alarm_ns: int) -> tuple[tuple[str, ...], Matrix, Matrix] | None:
    """Return the services, their signatures [V, F] and the adjacency [V, V]; None without telemetry."""
    signatures = describe_services(episode, alarm_ns)
    if signatures is None:
        return None
    position = {service: number for number, service in enumerate(signatures.services)}
    adjacency = np.eye(len(position))
    for caller, callee in read_call_graph(episode):
        if caller in position and callee in position:
            adjacency[position[caller], position[callee]] = adjacency[position[callee], position[caller]] = 1.0
    return signatures.services, signatures.rows, adjacency


def pad_graphs(graphs: Sequence[tuple[Matrix, ...]]) -> list[Matrix]:
    """Stack the arrays of several graphs, padded to the same number of services.

    Each padding node is adjacent to itself only.
    """
    services = max(len(rows) for rows, *_ in graphs)
    stacks = []
    for index, arrays in enumerate(zip(*graphs, strict=True)):
        is_adjacency = index == 1
        width = (services,) if is_adjacency else arrays[0].shape[1:]
        stack = np.zeros((len(arrays), services, *width))
        for number, array in enumerate(arrays):
            stack[(number, *(slice(size) for size in array.shape))] = array
            if is_adjacency:
                padding = np.arange(len(array), services)
                stack[number, padding, padding] = 1.0
        stacks.append(stack)
    return stacks
