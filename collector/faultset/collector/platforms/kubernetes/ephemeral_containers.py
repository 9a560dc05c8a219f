"""Impairments by an ephemeral container in every pod, where nothing may run privileged on nodes.

The container is in every pod of every episode, so that its presence tells nothing. It needs the capability NET_ADMIN,
which the levels `baseline` and `restricted` of Pod Security forbid: the application's namespace must be at level
`privileged`, or without a level. What is spared are privileged pods, the host's processes and the host's folders,
which policies often forbid for themselves. A container's main process cannot be killed from inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.kubernetes.client import Api, NotFound, path_of
from faultset.collector.platforms.kubernetes.impairer import (
    EPHEMERAL,
    PROGRAM,
    NodeCapabilities,
    ProgramImpairer,
    common,
    uid_of,
)
from faultset.collector.platforms.objects import Object
from faultset.core.errors import PlatformError
from faultset.core.polling import poll_until

_STRATEGIC = "application/strategic-merge-patch+json"
_START_TIMEOUT_S = 60.0
_POLL_S = 0.4


class EphemeralImpairer(ProgramImpairer):
    """Disturbs the pods of one namespace from inside of them.

    Parameters
    ----------
    namespace
        The application's.
    image
        Of the application, which has the programs that are needed.
    """

    container = EPHEMERAL

    def __init__(self, api: Api, namespace: str, image: str):
        super().__init__(api, namespace)
        self._image = image

    def prepare(self, pods: Iterable[Object]) -> None:
        """Put the container into pods that have none, and wait until it runs in all of them.

        Raises
        ------
        PlatformError
            The cluster forbids it, or one does not start within a minute.
        """
        wanted = list(pods)
        for pod in wanted:
            self._insert(pod)
        names = [pod["metadata"]["name"] for pod in wanted]
        if not poll_until(lambda: not self._missing(names), timeout_s=_START_TIMEOUT_S, pause_s=_POLL_S):
            raise PlatformError(
                f"the container that impairs networks did not start within {_START_TIMEOUT_S:g} s in "
                f"{', '.join(self._missing(names))}"
            )

    def ready(self, nodes_needed: int | None = None) -> str:
        """Return which pods have no such container yet, empty when all have."""
        missing = self._missing(pod["metadata"]["name"] for pod in self._pods())
        return f"pods without the container {EPHEMERAL}: {', '.join(missing)}" if missing else ""

    def capabilities(self) -> NodeCapabilities:
        """Return what can be done, as the first pod that is prepared finds out."""
        for pod in self._pods():
            if _runs(pod):
                return common([self._ask(pod, "capabilities")])
        return common([])

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair all that the pod sends, in place of any impairment before; raise PlatformError when it fails."""
        self.prepare([pod])
        super().impair(pod, impairment)

    def kill(self, pod: Object, container: str) -> None:
        """Refuse: the kernel spares the first process of a process namespace from signals out of its midst."""
        raise PlatformError(
            f"container {container} of pod {pod['metadata']['name']} cannot be killed without the node agent; "
            "allow privileged pods in the control namespace"
        )

    def renew(self) -> None:
        """Renew all leases once, and put the container into pods that have come up."""
        with self._lock:
            self._impaired = {uid: one for uid, one in self._impaired.items() if self._lives(one[0])}
            super().renew()
        for pod in self._pods():
            self._insert(pod)

    def _insert(self, pod: Object) -> None:
        running = pod.get("status", {}).get("phase") in ("Pending", "Running")
        if _has(pod) or not running or pod["metadata"].get("deletionTimestamp"):
            return
        made = {
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
        path = f"{path_of('Pod', self._namespace, pod['metadata']['name'])}/ephemeralcontainers"
        try:
            self._api.call("PATCH", path, body={"spec": {"ephemeralContainers": [made]}}, content_type=_STRATEGIC)
        except NotFound:
            return

    def _missing(self, names: Iterable[str]) -> list[str]:
        running = {pod["metadata"]["name"] for pod in self._pods() if _runs(pod)}
        alive = {pod["metadata"]["name"] for pod in self._pods() if not pod["metadata"].get("deletionTimestamp")}
        return [name for name in names if name in alive and name not in running]

    def _lives(self, pod: Object) -> bool:
        try:
            found = self._api.get(path_of("Pod", self._namespace, pod["metadata"]["name"]))
        except NotFound:
            return False
        return uid_of(found) == uid_of(pod) and _runs(found)

    def _pods(self) -> list[Object]:
        return self._api.get(path_of("Pod", self._namespace))["items"]

    def _ask(self, target: Object, verb: str, *, brief: bool = False, **arguments: Any) -> dict[str, Any]:
        name = target["metadata"]["name"]
        if not self._lives(target):
            raise NotFound(f"pod {name} is gone, or its container {EPHEMERAL} does not run")
        return self._run(name, f"pod {name}", verb, arguments)


def _has(pod: Object) -> bool:
    return any(one["name"] == EPHEMERAL for one in pod["spec"].get("ephemeralContainers") or [])


def _runs(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or []
    return any(one["name"] == EPHEMERAL and "running" in one.get("state", {}) for one in statuses)
