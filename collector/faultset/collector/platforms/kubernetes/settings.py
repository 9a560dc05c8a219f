"""Settings of the cluster on which episodes run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faultset.collector.platforms.kubernetes.images import REPOSITORY

AGENT, CHAOS_MESH = INJECTORS = ("agent", "chaos-mesh")
"""Mechanisms that impair pods: our node agents, or the cluster's Chaos Mesh."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Options of the command line; None for automatic discovery.

    Attributes
    ----------
    image
        Repository of the application's image, without a tag.
    privileged
        Whether agents may run on the nodes; otherwise a container in every pod impairs its network.
    injector
        One of `INJECTORS`.
    original_servers
        Names and versions of original store servers in the image, by driver.
    """

    kubeconfig: str | None = None
    context: str | None = None
    prometheus_url: str | None = None
    jaeger_url: str | None = None
    image: str = REPOSITORY
    privileged: bool = True
    injector: str = AGENT
    original_servers: Mapping[str, str] = field(default_factory=dict[str, str])
