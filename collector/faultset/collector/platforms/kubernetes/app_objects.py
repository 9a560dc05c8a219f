"""The objects of an application on a cluster, with verbs that journal and an undo that a recovery can run as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.impairments import Impairment
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.base import JournaledObjects
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.platforms.kubernetes.api.client import Api, run_in_pod
from faultset.collector.platforms.kubernetes.workloads.existing_apps import objects_of
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError


class AppObjects(JournaledObjects):
    """The objects of one application in its namespace.

    Without a platform, as in a recovery, impairments are left to their leases, which end by themselves.
    """

    undo_timeout_s = 60.0
    undo_pause_s = 0.5

    def __init__(self, app: AppSpec, journal: Journal, api: Api, namespace: str):
        super().__init__(app, journal)
        self.api, self.namespace = api, namespace
        self._objects = objects_of(api, app, namespace)

    def find(self, kind: str, name: str) -> Object | None:
        """Return one object, or None."""
        return self._objects.find(kind, name)

    def get(self, kind: str, name: str) -> Object:
        """Return one object; raise NotFound."""
        return self._objects.get(kind, name)

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return all objects of a kind that carry the labels, by name."""
        return self._objects.list(kind, labels)

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Run a command in the pod's main container and return its output; not journaled."""
        container = self.get("Pod", pod)["spec"]["containers"][0]["name"]
        return run_in_pod(self.api, self.namespace, pod, container, argv)

    def _create(self, manifest: Mapping[str, Any]) -> bool:
        # an API server refuses a Service whose address is taken as invalid, before it sees that the Service exists
        if self.find(manifest["kind"], manifest["metadata"]["name"]) is not None:
            return False
        return self._objects.create(manifest)

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self._objects.patch(kind, name, change)

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        self._objects.delete(kind, name, grace_period_s=grace_period_s)

    def _kill(self, pod: Object, container: str) -> None:
        raise PlatformError("containers can only be killed while their episode runs")

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        raise PlatformError("networks can only be impaired while their episode runs")

    def _lift(self, pod: str) -> None:
        """Do nothing."""

    def _is_of_app(self, pod: Object) -> bool:
        return (pod["metadata"].get("labels") or {}).get(self.app.label_key) in self.app.services
