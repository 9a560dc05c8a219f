"""Impair pods through an ephemeral container in each pod, for clusters that forbid privileged pods.

Every pod of every episode has the container, so that its presence reveals nothing. It needs NET_ADMIN and NET_RAW,
which the Pod Security levels `baseline` and `restricted` forbid, so the application's namespace must have the level
`privileged` or none. The container cannot kill a container's main process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.kubernetes.client import Api, NotFound, build_path
from faultset.collector.platforms.kubernetes.impairer import (
    EPHEMERAL,
    PROGRAM,
    NodeCapabilities,
    ProgramImpairer,
    get_uid,
    intersect_capabilities,
)
from faultset.core.errors import PlatformError
from faultset.core.processes import poll_until
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

_PATCH_TYPE = "application/strategic-merge-patch+json"
_START_TIMEOUT_S = 60.0
_POLL_S = 0.4


class EphemeralImpairer(ProgramImpairer):
    """Impairs the pods of a namespace from inside.

    Parameters
    ----------
    namespace
        The application's namespace.
    image
        The application's image, which contains the agent program.
    """

    container = EPHEMERAL

    def __init__(self, api: Api, namespace: str, image: str):
        super().__init__(api, namespace)
        self._image = image

    def prepare(self, pods: Iterable[Object]) -> None:
        """Add the container to pods without it, and wait until it is running in all pods.

        Raises
        ------
        PlatformError
            The cluster forbids ephemeral containers, or one does not start within a minute.
        """
        targets = list(pods)
        for pod in targets:
            self._insert(pod)
        names = [pod["metadata"]["name"] for pod in targets]
        if not poll_until(lambda: not self._list_missing(names), timeout_s=_START_TIMEOUT_S, pause_s=_POLL_S):
            raise PlatformError(
                f"the container {EPHEMERAL}, which impairs networks, did not start within {_START_TIMEOUT_S:g} s in "
                f"{', '.join(self._list_missing(names))}"
            )

    def capabilities(self) -> NodeCapabilities:
        """Return the capabilities of the first pod in which the container is running."""
        for pod in self._pods():
            if _is_container_running(pod):
                return intersect_capabilities([self._send_request(pod, "capabilities")])
        return intersect_capabilities([])

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, replacing an earlier impairment; raise PlatformError if it fails."""
        self.prepare([pod])
        super().impair(pod, impairment)

    def kill(self, pod: Object, container: str) -> None:
        """Raise PlatformError, because the kernel ignores SIGKILL from inside a container to its main process."""
        raise PlatformError(
            f"container {container} of pod {pod['metadata']['name']} cannot be killed without the node agent; "
            "allow privileged pods in the control namespace"
        )

    def renew(self) -> None:
        """Renew all leases once, and add the container to new pods."""
        with self._lock:
            self._impaired = {uid: entry for uid, entry in self._impaired.items() if self._is_running(entry[0])}
            super().renew()
        for pod in self._pods():
            self._insert(pod)

    def _insert(self, pod: Object) -> None:
        may_run = pod.get("status", {}).get("phase") in ("Pending", "Running")
        if _has_container(pod) or not may_run or pod["metadata"].get("deletionTimestamp"):
            return
        container = {
            "name": EPHEMERAL,
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": [*PROGRAM, "watch"],
            "securityContext": {
                "runAsUser": 0,
                "runAsGroup": 0,
                "runAsNonRoot": False,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
            },
        }
        path = f"{build_path('Pod', self._namespace, pod['metadata']['name'])}/ephemeralcontainers"
        try:
            self._api.call("PATCH", path, body={"spec": {"ephemeralContainers": [container]}}, content_type=_PATCH_TYPE)
        except NotFound:
            return

    def _list_missing(self, names: Iterable[str]) -> list[str]:
        running = {pod["metadata"]["name"] for pod in self._pods() if _is_container_running(pod)}
        alive = {pod["metadata"]["name"] for pod in self._pods() if not pod["metadata"].get("deletionTimestamp")}
        return [name for name in names if name in alive and name not in running]

    def _is_running(self, pod: Object) -> bool:
        current = self._api.find(build_path("Pod", self._namespace, pod["metadata"]["name"]))
        return current is not None and get_uid(current) == get_uid(pod) and _is_container_running(current)

    def _pods(self) -> list[Object]:
        return self._api.get(build_path("Pod", self._namespace))["items"]

    def _send_request(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        name = target["metadata"]["name"]
        if not self._is_running(target):
            raise NotFound(f"pod {name} was deleted, or its container {EPHEMERAL} is not running")
        return self._run(name, f"pod {name}", verb, arguments)


def _has_container(pod: Object) -> bool:
    return any(entry["name"] == EPHEMERAL for entry in pod["spec"].get("ephemeralContainers") or [])


def _is_container_running(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or []
    return any(status["name"] == EPHEMERAL and "running" in status.get("state", {}) for status in statuses)
