from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from faultset.collector.platforms.cluster.context import Command, ProbeContainer, StartContainer
from faultset.collector.platforms.fake import SimulatedCluster

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
IMAGE = "faultset/app:1.0.0"
LABEL = "app"


class Bench(SimulatedCluster):
    """A simulated cluster that remembers its commands, with shorthands for tests."""

    def __init__(self, *, factor: float = 1.0):
        self.commands: list[Command] = []
        super().__init__(now_ns=START, namespace="shop", label_key=LABEL, back_off_factor=factor)

    def apply(self, *objects: dict[str, Any]) -> None:
        for made in objects:
            self.store.apply(made)
        self.settle()

    def patch(self, kind: str, name: str, change: dict[str, Any]) -> None:
        self.store.patch(kind, name, change)
        self.settle()

    def delete(self, kind: str, name: str, grace_period_s: float | None = None) -> None:
        self.store.delete(kind, name, grace_period_s=grace_period_s)
        self.settle()

    def pods(self, service: str) -> list[dict[str, Any]]:
        return self.store.list("Pod", {LABEL: service})

    def pod(self, service: str) -> dict[str, Any]:
        (only,) = self.pods(service)
        return only

    def name(self, service: str) -> str:
        return self.pod(service)["metadata"]["name"]

    def container(self, service: str) -> dict[str, Any]:
        return self.pod(service)["status"]["containerStatuses"][0]

    def messages(self, reason: str) -> list[str]:
        return [seen.message for seen in self.cluster.events.events if seen.reason == reason]

    def starts(self) -> list[StartContainer]:
        return [command for command in self.commands if isinstance(command, StartContainer)]

    def _perform(self, command: Command) -> None:
        self.commands.append(command)
        if not isinstance(command, ProbeContainer):  # tests answer themselves
            super()._perform(command)


def deployment(name: str, **changes: Any) -> dict[str, Any]:
    """A Deployment; `changes` go to its spec, `pod` to the pod's, `container` to the container's."""
    container = {
        "name": f"{name}-main",
        "image": IMAGE,
        "command": ["faultset-service", name],
        "resources": {"requests": {"cpu": "5m"}, "limits": {"cpu": "1000m", "memory": "256Mi"}},
        **changes.pop("container", {}),
    }
    pod = {"containers": [container], **changes.pop("pod", {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {LABEL: name}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {LABEL: name}},
            "template": {"metadata": {"labels": {LABEL: name}}, "spec": pod},
            **changes,
        },
    }


def service(name: str, port: int = 8080, target: int | str | None = None) -> dict[str, Any]:
    """A Service in front of the pods of a workload."""
    ports: dict[str, Any] = {"port": port} if target is None else {"port": port, "targetPort": target}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {LABEL: name}},
        "spec": {"selector": {LABEL: name}, "ports": [ports]},
    }


def volume(name: str) -> dict[str, Any]:
    """A PersistentVolume that fits the claim of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{name}-pv"},
        "spec": {"capacity": {"storage": "1Gi"}, "storageClassName": f"{name}-storage"},
    }


def claim(name: str) -> dict[str, Any]:
    """A PersistentVolumeClaim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-pvc", "labels": {LABEL: name}},
        "spec": {"storageClassName": f"{name}-storage", "resources": {"requests": {"storage": "1Gi"}}},
    }


def claiming(name: str) -> dict[str, Any]:
    """A Deployment whose pod mounts the claim of the same name."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"{name}-pvc"}}]
    mounts = [{"name": "data", "mountPath": "/data/db"}]
    return deployment(name, strategy={"type": "Recreate"}, pod={"volumes": volumes}, container={"volumeMounts": mounts})


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    return Bench


@pytest.fixture
def manifest() -> SimpleNamespace:
    return SimpleNamespace(deployment=deployment, service=service, volume=volume, claim=claim, claiming=claiming)
