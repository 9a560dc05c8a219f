"""A cluster as a place for episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from faultset.collector.faults.registry import FaultSpec
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.settings import ClusterSettings
from faultset.collector.platforms.kubernetes.telemetry.discovery import discover
from faultset.collector.spec.app import AppSpec


class KubernetesSite:
    """See `Site`."""

    def __init__(self, settings: Mapping[str, Any]):
        self._settings = ClusterSettings(**settings)

    @cached_property
    def api(self) -> Api:
        """A connection to the cluster; raises PlatformError when there is none."""
        return Api(self._settings.kubeconfig, context=self._settings.context, patience_s=10.0)

    def check(self) -> None:
        """Refuse a cluster that cannot be reached, forbids what is needed, or has no Prometheus or no Jaeger."""
        from faultset.collector.platforms.kubernetes.api.permissions import check_permissions

        self.api.get("/version")
        check_permissions(self.api)
        found = discover(self.api, prometheus_url=self._settings.prometheus_url, jaeger_url=self._settings.jaeger_url)
        for sentence in found.said:
            print(sentence)

    def default_jobs(self) -> int:
        """Return as many episodes as the nodes have room for, eight at most."""
        from faultset.collector.platforms.kubernetes.doctor.capacity import episodes_that_fit

        return max(1, min(8, episodes_that_fit(self.api)))

    def refusals(self, faults: Sequence[FaultSpec]) -> dict[str, str]:
        """Return the faults that this cluster cannot make, with the reason."""
        from faultset.collector.platforms.kubernetes.doctor.preflight import refusals

        refused, privileged = refusals(self.api, faults, self._settings.repository)
        self._settings = replace(self._settings, privileged=privileged)
        return refused

    @property
    def settings(self) -> dict[str, Any]:
        """Return what another process needs to open the same site."""
        return asdict(self._settings)

    def make(self, plan: Plan, app: AppSpec, folder: Path, journal: Journal) -> Platform:
        """Return a platform for one episode."""
        from faultset.collector.platforms.kubernetes.platform import KubernetesPlatform

        return KubernetesPlatform(app, folder, journal=journal, episode=plan.episode, settings=self._settings)

    def undo_abandoned(self, journal: Path) -> None:
        """Remove the namespaces of an episode; undo what it did to those that are not ours."""
        from faultset.collector.platforms.kubernetes.recovery import recover_episode

        recover_episode(self.api, journal)

    def remove_strays(self) -> list[str]:
        """Remove namespaces of ours that have shown no sign of life for a while."""
        from faultset.collector.platforms.kubernetes.recovery import remove_strays

        return remove_strays(self.api)
