"""Impairments by an ephemeral container in every pod, where nothing may run privileged on nodes.

The container is in every pod of every episode, so that its presence tells nothing. It needs the capability NET_ADMIN,
which the levels `baseline` and `restricted` of Pod Security forbid: the application's namespace must be at level
`privileged`, or without a level. What is spared are privileged pods, the host's processes and the host's folders,
which policies often forbid for themselves. A container's main process cannot be killed from inside.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from typing import Any

from faultset.collector.agent.protocol import LEASE_S
from faultset.collector.platforms.api.impairments import Impairment, impairment_record
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.client import Api, NotFound, path_of, run_in_pod
from faultset.collector.platforms.kubernetes.impairments.impairer import (
    EPHEMERAL,
    NodeCapabilities,
    Renewal,
    common,
    uid_of,
)
from faultset.core.errors import PlatformError

_STRATEGIC = "application/strategic-merge-patch+json"
_PROGRAM = ("python3", "-m", "faultset.collector.agent.in_pod")
_START_TIMEOUT_S = 60.0
_POLL_S = 0.4


class EphemeralImpairer:
    """Disturbs the pods of one namespace from inside of them.

    Parameters
    ----------
    namespace
        The application's.
    image
        Of the application, which has the programs that are needed.
    """

    def __init__(self, api: Api, namespace: str, image: str):
        self._api, self._namespace, self._image = api, namespace, image
        self._impaired: dict[str, tuple[Object, Impairment]] = {}
        self._lock = threading.RLock()
        self._renewal = Renewal(self._tick)

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
        deadline = time.monotonic() + _START_TIMEOUT_S
        while missing := self._missing(pod["metadata"]["name"] for pod in wanted):
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"the container that impairs networks did not start within {_START_TIMEOUT_S:g} s in "
                    f"{', '.join(missing)}"
                )
            time.sleep(_POLL_S)

    def ready(self, nodes_needed: int | None = None) -> str:
        """Return which pods have no such container yet, empty when all have."""
        missing = self._missing(pod["metadata"]["name"] for pod in self._pods())
        return f"pods without the container {EPHEMERAL}: {', '.join(missing)}" if missing else ""

    def capabilities(self) -> NodeCapabilities:
        """Return what can be done, as the first pod that is prepared finds out."""
        for pod in self._pods():
            if _runs(pod):
                return common([self._ask(pod["metadata"]["name"], "capabilities")])
        return common([])

    def start(self) -> None:
        """Begin to renew leases, and to prepare pods that come up."""
        self._renewal.start()

    def close(self) -> None:
        """Renew no more leases; may be called twice."""
        self._renewal.close()

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair all that the pod sends, in place of any impairment before; raise PlatformError when it fails."""
        with self._lock:
            self.prepare([pod])
            self._set(pod, impairment)
            self._impaired[uid_of(pod)] = (pod, impairment)

    def lift(self, pod: str) -> None:
        """End the impairment of a pod, by name or uid; nothing happens when there is none, or no pod any more."""
        with self._lock:
            for uid, (found, _) in list(self._impaired.items()):
                if pod in (uid, found["metadata"]["name"]):
                    if self._lives(found):
                        self._ask(found["metadata"]["name"], "lift")
                    del self._impaired[uid]

    def impaired_packets(self, pod: Object) -> int:
        """Return how many packets the impairment has met so far; 0 without one."""
        return self._ask(pod["metadata"]["name"], "counters")["packets"]

    def kill(self, pod: Object, container: str) -> None:
        """Refuse: the kernel spares the first process of a process namespace from signals out of its midst."""
        raise PlatformError(
            f"container {container} of pod {pod['metadata']['name']} cannot be killed without the node agent; "
            "allow privileged pods in the control namespace"
        )

    def renew(self) -> None:
        """Renew all leases once; what a pod has lost is set again."""
        with self._lock:
            for uid, (pod, impairment) in list(self._impaired.items()):
                if not self._lives(pod):
                    del self._impaired[uid]
                elif not self._ask(pod["metadata"]["name"], "renew")["known"]:
                    self._set(pod, impairment)

    def _tick(self) -> None:
        self.renew()
        for pod in self._pods():
            self._insert(pod)

    def _set(self, pod: Object, impairment: Impairment) -> None:
        self._ask(pod["metadata"]["name"], "impair", json.dumps(impairment_record(impairment)), str(LEASE_S))

    def _insert(self, pod: Object) -> None:
        running = pod.get("status", {}).get("phase") in ("Pending", "Running")
        if _has(pod) or not running or pod["metadata"].get("deletionTimestamp"):
            return
        made = {
            "name": EPHEMERAL,
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": [*_PROGRAM, "watch"],
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

    def _ask(self, pod: str, *words: str) -> dict[str, Any]:
        answer = json.loads(run_in_pod(self._api, self._namespace, pod, EPHEMERAL, [*_PROGRAM, *words]))
        if "error" in answer:
            raise PlatformError(f"pod {pod} could not {words[0]}: {answer['error']}")
        return answer


def _has(pod: Object) -> bool:
    return any(one["name"] == EPHEMERAL for one in pod["spec"].get("ephemeralContainers") or [])


def _runs(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or []
    return any(one["name"] == EPHEMERAL and "running" in one.get("state", {}) for one in statuses)
