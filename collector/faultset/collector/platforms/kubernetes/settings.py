"""How a user's cluster is reached and used."""

from __future__ import annotations

from dataclasses import dataclass

from faultset.collector.platforms.kubernetes.workloads.images import REPOSITORY

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
    """

    kubeconfig: str | None = None
    context: str | None = None
    prometheus_url: str | None = None
    jaeger_url: str | None = None
    image: str = REPOSITORY
    privileged: bool = True
    injector: str = AGENT
