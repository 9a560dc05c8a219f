"""Eadro-like localizer: a graph network on metrics, logs and traces of each service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from faultset.baselines.api.contract import Evidence, Labelled, Ranking, RegisteredBaseline
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.features.service_latency import read_call_graph
from faultset.baselines.methods.localization.trained_rankers import NAMES, TABLES_READ, describe_services
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
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

UPDATES = 300
BATCH = 16
_MASKED = -1e9
_MAX_EVIDENCE = 5
SOURCES = {
    "logs": [index for index, name in enumerate(NAMES) if name.startswith("error lines")],
    "traces": [index for index, name in enumerate(NAMES) if "calls to it" in name],
}
SOURCES["metrics"] = [index for index in range(len(NAMES)) if index not in SOURCES["logs"] + SOURCES["traces"]]
_SHARED = (
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


@baseline(
    "eadro",
    title="Graph attention on three sources (Eadro-like)",
    task="localization",
    paper="Lee, Yang, Chen, Su, Lyu, Eadro, ICSE 2023",
    kind="own",
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    speed="fast",
    complexity="O(S·T + L + N + V²·h), and the same for each training episode; a fit O(updates·V²·h)",
    departures=(*_SHARED, "The network is trained by Adam with weight decay for a fixed number of updates."),
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
        """Rank the candidates by their share of the suspicion."""
        graph = None if self.model_ is None else build_graph(episode, alarm_ns)
        if self.model_ is None or graph is None or not graph[1].any():
            return Ranking.abstain()
        services, rows, adjacency = graph
        shares = np.exp(compute_suspicion(np, self.model_, rows[None], adjacency[None], np.ones((1, len(rows))))[0])
        best = int(shares.argmax())
        order = np.argsort(-np.abs(rows[best]), kind="stable")[:_MAX_EVIDENCE].tolist()
        evidence = [
            Evidence(service=services[best], subject=NAMES[index], score=float(rows[best, index]))
            for index in order
            if rows[best, index]
        ]
        return Ranking.of(dict(zip(services, shares.tolist(), strict=True)), episode.services, evidence)

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


@baseline(
    "untrained-eadro",
    title="Untrained graph attention",
    task="localization",
    paper="Kim, Choi, Choi, Lee, Yoon, AAAI 2022",
    kind="control",
    tables=TABLES_READ,
    needs=("labels",),
    stochastic=True,
    speed="fast",
    complexity="O(S·T + L + N + V²·h)",
    departures=_SHARED,
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
    """Return services, signatures [V, F] and adjacency [V, V]; None without telemetry."""
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
