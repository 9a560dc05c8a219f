"""The cluster of a kubeconfig as a host of episodes."""

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
from faultset.collector.platforms.kubernetes.settings import AGENT, CHAOS_MESH, INJECTORS, REPOSITORY, ClusterSettings
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import unknown_name

STANDARD_ON_CLUSTER = Phases(warmup_s=30.0, baseline_s=300.0, fault_s=300.0, cooldown_s=15.0)
"""Long enough for about fifty reference samples at a scrape interval of 5 s; some samples arrive 17 s late."""


class KubernetesHost:
    """The host of episodes on a cluster; `ClusterSettings` describes the parameters."""

    profiles: ClassVar[Mapping[str, Phases]] = {"quick": QUICK, "standard": STANDARD_ON_CLUSTER, "long": LONG}
    runs_code_of_folders: ClassVar[bool] = False
    runs_deployed_apps: ClassVar[bool] = True
    deploys_operators: ClassVar[bool] = True
    original_store_kinds: ClassVar[frozenset[str]] = frozenset({"memcached", "postgresql"})
    """Stores whose original servers the image contains if it was built with `--stores`."""

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
        self._probe_result: tuple[dict[str, str], bool] | None = None

    @cached_property
    def api(self) -> Api:
        """A connection to the cluster; raises PlatformError if there is none."""
        return Api(self._settings.kubeconfig, context=self._settings.context, retry_timeout_s=10.0)

    @property
    def settings(self) -> dict[str, Any]:
        return asdict(self._settings)

    def requirements(self) -> list[Requirement]:
        """Check access, permissions, telemetry servers, images, capacity and capabilities."""
        from faultset.collector.platforms.kubernetes.checks import check_cluster

        return check_cluster(self.api, self._settings, self._probe)

    def check(self) -> list[str]:
        """Check access, permissions, the injector, Prometheus and Jaeger; return which servers will be used."""
        from faultset.collector.platforms.kubernetes.preflight import check_permissions
        from faultset.collector.platforms.kubernetes.telemetry.discovery import discover

        self.api.get("/version")
        check_permissions(self.api)
        if self._settings.injector == CHAOS_MESH:
            from faultset.collector.platforms.kubernetes.chaos_mesh.installation import check_installation

            check_installation(self.api)
        servers = discover(self.api, prometheus_url=self._settings.prometheus_url, jaeger_url=self._settings.jaeger_url)
        return list(servers.choices)

    def episode_capacity(self) -> int:
        """Return how many episodes the nodes can run concurrently, at most eight."""
        from faultset.collector.platforms.kubernetes.checks import episode_capacity

        return max(1, min(8, episode_capacity(self.api)))

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return the needed capabilities that this cluster lacks, with the reasons; starts the node agent briefly."""
        unsupported, _ = self._probe()
        return {need: reason for need, reason in unsupported.items() if need in needs}

    def _probe(self) -> tuple[dict[str, str], bool]:
        from faultset.collector.platforms.kubernetes.preflight import unsupported_needs

        if self._probe_result is None:
            unsupported, privileged = unsupported_needs(self.api, self._settings.image)
            self._settings = replace(self._settings, privileged=privileged)
            if self._settings.injector == CHAOS_MESH:
                from faultset.collector.platforms.kubernetes.chaos_mesh.installation import unsupported_by_chaos_mesh

                unsupported = unsupported_by_chaos_mesh(self.api, unsupported)
            self._probe_result = unsupported, privileged
        return self._probe_result

    def original_servers(self, drivers: Collection[str]) -> dict[str, str]:
        """Return the names and versions of the servers in the image; starts a pod briefly."""
        from faultset.collector.platforms.kubernetes.preflight import installed_servers

        cached = self._settings.original_servers
        if missing := [name for name in drivers if name not in cached]:
            servers = installed_servers(self.api, missing, self._settings.image)
            self._settings = replace(self._settings, original_servers={**cached, **servers})
        return {name: self._settings.original_servers[name] for name in drivers}

    def create_platform(
        self, app: AppSpec, folder: Path, journal: Journal, *, episode: str, seed: int, step_s: float
    ) -> EpisodePlatform:
        """Return a platform for one episode; a cluster ignores `seed` and `step_s`."""
        if self._settings.injector == CHAOS_MESH:
            from faultset.collector.platforms.kubernetes.platform import ChaosMeshPlatform as Platform
        else:
            from faultset.collector.platforms.kubernetes.platform import KubernetesPlatform as Platform

        return Platform(app, folder, journal=journal, episode=episode, settings=self._settings)

    def await_removal(self, episodes: Collection[str]) -> None:
        """Wait until the cluster has removed the deleted namespaces of episodes."""
        from faultset.collector.platforms.kubernetes.objects import await_removal_of_episodes

        await_removal_of_episodes(self.api, episodes)

    def undo_abandoned(self, journal: Path) -> None:
        """Remove an episode's namespaces, or undo its changes in a namespace that it did not create."""
        from faultset.collector.platforms.kubernetes.recovery import recover_episode

        recover_episode(self.api, journal)

    def remove_orphans(self) -> list[str]:
        """Remove the namespaces of episodes whose heartbeat has stopped."""
        from faultset.collector.platforms.kubernetes.recovery import remove_orphans

        return remove_orphans(self.api)

    def install_telemetry(self) -> str:
        from faultset.collector.platforms.kubernetes.telemetry.stack_objects import install_telemetry

        install_telemetry(self.api)
        return "installed Prometheus, Jaeger and kube-state-metrics; run 'faultset recover --telemetry' to remove them"

    def remove_telemetry(self) -> list[str]:
        from faultset.collector.platforms.kubernetes.telemetry.stack_objects import remove_telemetry

        return remove_telemetry(self.api)
