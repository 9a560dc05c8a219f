"""What the kubelet knows about the pods on its node, and the status that it reports for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.local.controllers.commands import Mount
from faultset.collector.platforms.observation.timestamps import rfc3339


@dataclass
class ContainerState:
    """One container of a pod over all its restarts."""

    name: str
    image: str = ""
    attempt: int = -1
    starting: bool = False
    running: bool = False
    definition: str = ""
    limits: tuple[float | None, int | None] = (None, None)
    started_ns: int = 0
    finished_ns: int | None = None
    terminated: dict[str, Any] | None = None
    waiting: dict[str, Any] = field(default_factory=lambda: {"reason": "ContainerCreating"})
    terminated_shown: bool = False
    kill_at_ns: int | None = None
    reported_ns: int = 0
    is_asked: bool = False
    answers: bool = False
    completed: bool = False
    restart_why: str = ""

    @property
    def ready(self) -> bool:
        """Whether it runs and, where it has a readiness probe, answers; of an init container, whether it ended well."""
        return self.completed or (self.running and (self.answers or not self.is_asked))

    @property
    def ended(self) -> bool:
        """Whether no process of it runs."""
        return not (self.starting or self.running)

    def status(self) -> dict[str, Any]:
        """Return the containerStatus as the API shows it."""
        made: dict[str, Any] = {
            "name": self.name,
            "image": full_name(self.image),
            "ready": self.ready,
            "started": self.running,
            "restartCount": max(0, self.attempt),
        }
        if self.running:
            made["state"] = {"running": {"startedAt": rfc3339(self.started_ns)}}
        elif self.terminated_shown and self.terminated:
            made["state"] = {"terminated": self.terminated}
            return made
        else:
            made["state"] = {"waiting": dict(self.waiting)}
        if self.terminated:
            made["lastState"] = {"terminated": self.terminated}
        return made


def init_specs(pod: Object) -> list[dict[str, Any]]:
    """Return the init containers of a pod's spec."""
    return pod["spec"].get("initContainers") or []


def full_name(image: str) -> str:
    """Return an image as container runtimes report it: with the registry that a short name stands for.

    >>> full_name("faultset/app:1.0.0")
    'docker.io/faultset/app:1.0.0'
    """
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"


@dataclass
class PodState:
    """One pod on the node, kept until its last process has ended."""

    uid: str
    pod: Object
    address: str
    started_ns: int
    containers: dict[str, ContainerState] = field(default_factory=dict)
    mounts: dict[str, tuple[Mount, ...]] = field(default_factory=dict)
    refresh_at_ns: int = 0
    mount_retry_ns: int = 0
    mount_wait_s: float = 0.25
    stopping: bool = False

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod["metadata"]["name"]

    @property
    def ended(self) -> bool:
        """Whether no container of it runs."""
        return all(container.ended for container in self.containers.values())

    def status(self, now_ns: int) -> dict[str, Any]:
        """Return the pod's status as the API shows it."""
        before = self.pod.get("status", {})
        first = [self.containers[spec["name"]] for spec in init_specs(self.pod)]
        known = [self.containers[spec["name"]] for spec in self.pod["spec"]["containers"]]
        incomplete = [container.name for container in first if not container.completed]
        created = all(container.attempt >= 0 and not container.starting for container in known)
        ready = created and all(container.ready for container in known)
        conditions = [condition for condition in before.get("conditions", []) if condition["type"] == "PodScheduled"]
        old = {condition["type"]: condition for condition in before.get("conditions", [])}
        for kind, holds in (("Initialized", not incomplete), ("ContainersReady", ready), ("Ready", ready)):
            value = "True" if holds else "False"
            if old.get(kind, {}).get("status") == value:
                conditions.append(old[kind])
                continue
            condition = {"type": kind, "status": value, "lastTransitionTime": rfc3339(now_ns)}
            if not holds and kind == "Initialized":
                condition["reason"] = "ContainersNotInitialized"
                condition["message"] = f"containers with incomplete status: [{' '.join(incomplete)}]"
            elif not holds:
                condition["reason"] = "ContainersNotReady"
            conditions.append(condition)
        return {
            # a pod that has once run does not become Pending while a container starts again
            "phase": "Running" if created or before.get("phase") == "Running" else "Pending",
            "conditions": conditions,
            "podIP": self.address,
            "startTime": rfc3339(self.started_ns),
            **({"initContainerStatuses": [container.status() for container in first]} if first else {}),
            "containerStatuses": [container.status() for container in known],
        }
