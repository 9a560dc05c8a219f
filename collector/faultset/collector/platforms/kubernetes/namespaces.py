"""The namespaces of an episode: creation, heartbeat and removal."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.kubernetes.client import MERGE_PATCH, Api, Conflict, build_path, label_selector
from faultset.core.errors import PlatformError

MANAGED = {"app.kubernetes.io/managed-by": "faultset"}
"""Label of all our cluster-wide objects."""
EPISODE = "faultset.dev/episode"
APP_NAMESPACE = "faultset.dev/pair"
INJECTOR = "faultset.dev/injector"
"""Label of a control namespace with objects of an injector other than our agents."""
RENEWED = "faultset.dev/renewed"
PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}

RENEW_S = 15.0
ABANDONED_AFTER_S = 90.0
REMOVAL_TIMEOUT_S = 120.0
_POLL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class EpisodeNamespaces:
    """Names of an episode's namespaces: the application's, which is recorded, and the control namespace."""

    app: str
    control: str

    @staticmethod
    def draw(app: str, deployed: str | None = None) -> EpisodeNamespaces:
        """Draw random names; an application that is already running keeps its namespace `deployed`."""
        name = f"{app}-{secrets.token_hex(4)}"
        return EpisodeNamespaces(app=deployed or name, control=f"{name}-control")


def create_namespace(api: Api, name: str, labels: Mapping[str, str]) -> None:
    """Create a namespace; raise PlatformError if it exists."""
    annotations = {RENEWED: str(int(time.time()))}
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**MANAGED, **labels}, "annotations": annotations},
    }
    try:
        api.post(build_path("Namespace", ""), body)
    except Conflict:
        raise PlatformError(f"namespace {name} already exists; run 'faultset recover --platform kubernetes'") from None


def renew(api: Api, name: str) -> None:
    """Write a heartbeat to a namespace, so that it does not count as abandoned."""
    change = {"metadata": {"annotations": {RENEWED: str(int(time.time()))}}}
    api.call("PATCH", build_path("Namespace", "", name), body=change, content_type=MERGE_PATCH)


def remove_namespaces(api: Api, names: tuple[str, ...], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Delete namespaces and their pods, and wait until they are removed; see `await_removal`."""
    delete_namespaces(api, names)
    await_removal(api, names, timeout_s=timeout_s)


def delete_namespaces(api: Api, names: Iterable[str]) -> None:
    """Delete namespaces and their pods; the cluster removes them asynchronously."""
    for name in names:
        if api.delete(build_path("Namespace", "", name), {"propagationPolicy": "Background"}):
            api.delete(build_path("Pod", name), {"gracePeriodSeconds": 1})


def await_removal(api: Api, names: Iterable[str], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Wait until deleted namespaces are removed.

    Raises
    ------
    PlatformError
        A namespace is still terminating after `timeout_s`; the message says why.
    """
    deadline = time.monotonic() + timeout_s
    for name in names:
        while (namespace := api.find(build_path("Namespace", "", name))) is not None:
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"namespace {name} is still terminating after {timeout_s:g} s ({_removal_obstacle(namespace)}); "
                    "fix that, then run 'faultset recover --platform kubernetes'"
                )
            time.sleep(_POLL_S)


def remove_volumes(api: Api, namespace: str) -> int:
    """Delete the volumes of a namespace; return their number."""
    response = api.get(build_path("PersistentVolume", ""), {"labelSelector": f"{APP_NAMESPACE}={namespace}"})
    for item in response["items"]:
        api.delete(build_path("PersistentVolume", "", item["metadata"]["name"]))
    return len(response["items"])


def list_namespaces(api: Api) -> list[dict[str, Any]]:
    """Return all namespaces that episodes created."""
    selector = f"{label_selector(MANAGED)},{EPISODE}"
    return api.get(build_path("Namespace", ""), {"labelSelector": selector})["items"]


def await_removal_of_episodes(api: Api, episodes: Collection[str]) -> None:
    """Wait until the deleted namespaces of episodes are removed; see `await_removal`."""
    deleted = (item["metadata"] for item in list_namespaces(api) if item["metadata"].get("deletionTimestamp"))
    await_removal(api, [metadata["name"] for metadata in deleted if metadata["labels"][EPISODE] in episodes])


def is_abandoned(namespace: Mapping[str, Any]) -> bool:
    """Return whether a namespace has had no heartbeat for so long that its collector must have ended."""
    renewed = (namespace["metadata"].get("annotations") or {}).get(RENEWED, "0")
    return time.time() - float(renewed) > ABANDONED_AFTER_S


def _removal_obstacle(namespace: Mapping[str, Any]) -> str:
    conditions = namespace.get("status", {}).get("conditions") or []
    messages = [c["message"] for c in conditions if c.get("status") == "True" and c.get("message")]
    return "; ".join(messages)[:300] or "the cluster does not say why"


_STEP_S = 0.05


class Heartbeat:
    """Renews the heartbeat of the namespaces in a thread; without a heartbeat they count as abandoned.

    Attributes
    ----------
    worst_delay_s
        Worst scheduling delay of the thread.
    """

    def __init__(self, api: Api, namespaces: EpisodeNamespaces):
        self.worst_delay_s = 0.0
        self._api, self._namespaces = api, namespaces
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread; may be called twice."""
        self._closing.set()

    def _run(self) -> None:
        next_renewal = 0.0
        while not self._closing.is_set():
            before = time.monotonic()
            self._closing.wait(_STEP_S)
            self.worst_delay_s = max(self.worst_delay_s, time.monotonic() - before - _STEP_S)
            if time.monotonic() >= next_renewal:
                next_renewal = time.monotonic() + RENEW_S
                with contextlib.suppress(PlatformError):
                    renew(self._api, self._namespaces.control)
                    renew(self._api, self._namespaces.app)
