"""How a user's cluster is reached and used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faultset.collector.platforms.kubernetes.images import REPOSITORY

AGENT, CHAOS_MESH = INJECTORS = ("agent", "chaos-mesh")
"""What disturbs pods: node agents of our own, or the cluster's Chaos Mesh."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Choices of the command line, None where discovery decides.

    Attributes
    ----------
    image
        Where the nodes find our image, without its tag.
    privileged
        Whether an agent may run on the nodes; without, a container in every pod impairs its network.
    injector
        One of `INJECTORS`.
    original_servers
        Name and version of original servers of stores that were found in the image, by their drivers.
    """

    kubeconfig: str | None = None
    context: str | None = None
    prometheus_url: str | None = None
    jaeger_url: str | None = None
    image: str = REPOSITORY
    privileged: bool = True
    injector: str = AGENT
    original_servers: Mapping[str, str] = field(default_factory=dict[str, str])
