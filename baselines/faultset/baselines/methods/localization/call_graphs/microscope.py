"""Microscope: descend the call graph through anomalous services to where it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.service_latency import (
    FROM_SPANS,
    anomalous_services,
    call_graph,
    call_series,
    service_latency,
    similarity_to_front,
)

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@baseline(
    "microscope",
    title="Microscope",
    task="localization",
    paper="Lin, Chen, Zheng, Microscope, ICSOC 2018",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("spans", "metrics"),
    speed="instant",
    complexity="O(N + S·T + E)",
    departures=(
        *FROM_SPANS,
        "The graph is the call graph; the paper learns one from network connections and a parallel PC algorithm.",
        "Candidates are compared with the front end, and not with the node visited last, as one public port does.",
        "A service is anomalous when its latency stays beyond three sigma for three steps.",
    ),
)
class Microscope(Untrained):
    """Descend from the front end through anomalous services to those that call none; rank by correlation.

    References
    ----------
    Lin, Chen, Zheng, Microscope: pinpoint performance issues with causal graphs in micro-service environments,
    ICSOC 2018.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank the anomalous services at which the descent ends."""
        front = episode.context.workload_entry
        calls = call_series(episode)
        latency = service_latency(episode, alarm_ns, calls)
        anomalous = anomalous_services(latency)
        similarity = similarity_to_front(latency, front)
        ends = descent_ends(call_graph(episode, calls), front, anomalous)
        scores = {name: similarity.get(name, 0.0) for name in ends}
        evidence = [
            Evidence(service=name, subject="latency", score=anomalous[name], detail="sigmas for three steps")
            for name in sorted(ends, key=lambda name: (-scores[name], name))
        ]
        return Ranking.of(scores, episode.services, evidence)


def descent_ends(calls: tuple[tuple[str, str], ...], front: str, anomalous: Mapping[str, float]) -> tuple[str, ...]:
    """Anomalous services without anomalous callees that are reached from the front end through anomalous ones.

    >>> descent_ends((("f", "a"), ("a", "b"), ("f", "c"), ("c", "d")), "f", {"f": 4, "a": 5, "b": 6, "d": 9})
    ('b',)
    """
    seen: set[str] = set()
    ends: set[str] = set()
    waiting = [front] if front in anomalous else []
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        below = [callee for caller, callee in calls if caller == name and callee in anomalous]
        waiting += below
        if not below:
            ends.add(name)
    return tuple(sorted(ends))
