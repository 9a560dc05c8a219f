"""A cluster as a host of episodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.hosts import LONG, QUICK, Phases, Requirement
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.images import REPOSITORY
from faultset.collector.platforms.kubernetes.settings import AGENT, CHAOS_MESH, INJECTORS, ClusterSettings
from faultset.collector.spec.app import AppSpec
from faultset.core.suggestions import unknown_name

STANDARD_ON_CLUSTER = Phases(warmup_s=30.0, baseline_s=300.0, fault_s=300.0, cooldown_s=15.0)
"""Longer than elsewhere: a scrape every five seconds still gives about fifty reference samples; some are 17 s late."""


class KubernetesHost:
    """See `PlatformHost`, and `ClusterSettings` for the parameters."""

    profiles: ClassVar[Mapping[str, Phases]] = {"quick": QUICK, "standard": STANDARD_ON_CLUSTER, "long": LONG}
    runs_code_of_folders: ClassVar[bool] = False
    runs_deployed_apps: ClassVar[bool] = True
    deploys_operators: ClassVar[bool] = True
    original_store_kinds: ClassVar[frozenset[str]] = frozenset({"memcached", "postgresql"})
    """Those of which Debian has packages, from which the image is built."""

    def __init__(
        self,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        prometheus_url: str | None = None,
        jaeger_url: str | None = None,
        image: str = REPOSITORY,
        privileged: bool = True,
        injector: str = AGENT,
        original_servers: Mapping[str, str] | None = None,
    ):
        if injector not in INJECTORS:
            raise unknown_name("injector", injector, INJECTORS)
        self._settings = ClusterSettings(
            kubeconfig=kubeconfig,
            context=context,
            prometheus_url=prometheus_url,
            jaeger_url=jaeger_url,
            image=image,
            privileged=privileged,
            injector=injector,
            original_servers=dict(original_servers or {}),
        )
        self._probed: tuple[dict[str, str], bool] | None = None

    @cached_property
    def api(self) -> Api:
        """A connection to the cluster; raises PlatformError when there is none."""
        return Api(self._settings.kubeconfig, context=self._settings.context, retry_timeout_s=10.0)

    @property
    def settings(self) -> dict[str, Any]:
        """What another process needs to open the same host."""
        return asdict(self._settings)

    def requirements(self) -> list[Requirement]:
        """Look at access, permissions, telemetry servers, images, capacity and what faults need."""
        from faultset.collector.platforms.kubernetes.checks import check_cluster

        return check_cluster(self.api, self._settings, self._probe)

    def check(self) -> list[str]:
        """Look at access, permissions, Prometheus and Jaeger; return which servers will be asked."""
        from faultset.collector.platforms.kubernetes.permissions import check_permissions
        from faultset.collector.platforms.kubernetes.telemetry.discovery import discover

        self.api.get("/version")
        check_permissions(self.api)
        if self._settings.injector == CHAOS_MESH:
            from faultset.collector.platforms.kubernetes.chaos_mesh.installation import check_installation

            check_installation(self.api)
        found = discover(self.api, prometheus_url=self._settings.prometheus_url, jaeger_url=self._settings.jaeger_url)
        return list(found.choices)

    def episode_capacity(self) -> int:
        """Return as many episodes as the nodes can carry, eight at most."""
        from faultset.collector.platforms.kubernetes.checks import episode_capacity

        return max(1, min(8, episode_capacity(self.api)))

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return what this cluster cannot do, with the reason; runs the node agent for a moment to find out."""
        unsupported, _ = self._probe()
        return {need: reason for need, reason in unsupported.items() if need in needs}

    def _probe(self) -> tuple[dict[str, str], bool]:
        from faultset.collector.platforms.kubernetes.preflight import unsupported_needs

        if self._probed is None:
            unsupported, privileged = unsupported_needs(self.api, self._settings.image)
            self._settings = replace(self._settings, privileged=privileged)
            if self._settings.injector == CHAOS_MESH:
                from faultset.collector.platforms.kubernetes.chaos_mesh.installation import unsupported_by_chaos_mesh

                unsupported = unsupported_by_chaos_mesh(self.api, unsupported)
            self._probed = unsupported, privileged
        return self._probed

    def original_servers(self, drivers: Collection[str]) -> dict[str, str]:
        """Return name and version of servers that are in the image; runs a pod for a moment to find out."""
        from faultset.collector.platforms.kubernetes.preflight import installed_servers

        known = self._settings.original_servers
        if missing := [name for name in drivers if name not in known]:
            found = installed_servers(self.api, missing, self._settings.image)
            self._settings = replace(self._settings, original_servers={**known, **found})
        return {name: self._settings.original_servers[name] for name in drivers}

    def create_platform(
        self, app: AppSpec, folder: Path, journal: Journal, *, episode: str, seed: int, step_s: float
    ) -> EpisodePlatform:
        """Return a platform for one episode; `seed` and `step_s` are the cluster's own affair."""
        if self._settings.injector == CHAOS_MESH:
            from faultset.collector.platforms.kubernetes.chaos_mesh_platform import ChaosMeshPlatform as Made
        else:
            from faultset.collector.platforms.kubernetes.platform import KubernetesPlatform as Made

        return Made(app, folder, journal=journal, episode=episode, settings=self._settings)

    def await_removal(self, episodes: Collection[str]) -> None:
        """Wait until the cluster has removed the namespaces that episodes have deleted."""
        from faultset.collector.platforms.kubernetes.namespaces import await_removal_of_episodes

        await_removal_of_episodes(self.api, episodes)

    def undo_abandoned(self, journal: Path) -> None:
        """Remove the namespaces of an episode; undo what it did to those that are not ours."""
        from faultset.collector.platforms.kubernetes.recovery import recover_episode

        recover_episode(self.api, journal)

    def remove_orphans(self) -> list[str]:
        """Remove namespaces of ours that have had no heartbeat for a while."""
        from faultset.collector.platforms.kubernetes.recovery import remove_orphans

        return remove_orphans(self.api)

    def install_telemetry(self) -> str:
        """Give the cluster a small Prometheus, Jaeger and kube-state-metrics."""
        from faultset.collector.platforms.kubernetes.telemetry.stack_objects import install_telemetry

        install_telemetry(self.api)
        return "installed Prometheus, Jaeger and kube-state-metrics; recover --telemetry removes them"

    def remove_telemetry(self) -> list[str]:
        """Remove what `install_telemetry` made; return names."""
        from faultset.collector.platforms.kubernetes.telemetry.stack_objects import remove_telemetry

        return remove_telemetry(self.api)
