"""How many episodes the nodes of a cluster can carry."""

from __future__ import annotations

from typing import Any

from faultset.collector.platforms.kubernetes.api.client import Api, path_of
from faultset.collector.platforms.observation.quantities import quantity

CORES_PER_EPISODE = 1.5
"""Half a core while it runs; its start takes several for seconds, in which the episodes beside it must stay healthy."""
MEMORY_PER_EPISODE = 1.5 * 2**30
PODS_PER_EPISODE = 25


def episode_capacity(api: Api) -> int:
    """Return how many episodes the schedulable nodes can carry, going by what they offer to pods."""
    nodes = [node for node in api.get(path_of("Node", ""))["items"] if not node["spec"].get("unschedulable")]
    return int(
        min(
            _offered(nodes, "cpu") / CORES_PER_EPISODE,
            _offered(nodes, "memory") / MEMORY_PER_EPISODE,
            _offered(nodes, "pods") / PODS_PER_EPISODE,
        )
    )


def _offered(nodes: list[dict[str, Any]], resource: str) -> float:
    return sum(quantity(node["status"]["allocatable"].get(resource, "0")) for node in nodes)
