"""The namespaces of an episode: made, renewed while their collector lives, and removed."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.kubernetes.client import MERGE_PATCH, Api, Conflict, NotFound, path_of
from faultset.core.errors import PlatformError

MANAGED = {"app.kubernetes.io/managed-by": "faultset"}
"""Label of everything cluster-wide that is ours."""
EPISODE = "faultset.dev/episode"
APP_NAMESPACE = "faultset.dev/pair"
INJECTOR = "faultset.dev/injector"
"""Label of a control namespace with objects of another injector than our own."""
RENEWED = "faultset.dev/renewed"
PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}

RENEW_S = 15.0
ABANDONED_S = 90.0
REMOVAL_TIMEOUT_S = 120.0
_POLL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class EpisodeNamespaces:
    """Names of an episode's namespaces: the application's, which is recorded, and ours beside it."""

    app: str
    control: str

    @staticmethod
    def draw(app: str, deployed: str | None = None) -> EpisodeNamespaces:
        """Return new names, which tell nothing about the episode; `deployed` is where the application runs already."""
        name = f"{app}-{secrets.token_hex(4)}"
        return EpisodeNamespaces(app=deployed or name, control=f"{name}-control")


def make_namespace(api: Api, name: str, labels: Mapping[str, str]) -> None:
    """Create a namespace; raise PlatformError when it exists."""
    annotations = {RENEWED: str(int(time.time()))}
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**MANAGED, **labels}, "annotations": annotations},
    }
    try:
        api.post(path_of("Namespace", ""), body)
    except Conflict:
        raise PlatformError(f"namespace {name} exists already; run 'faultset recover --platform kubernetes'") from None


def renew(api: Api, name: str) -> None:
    """Leave a heartbeat on a namespace, so that nobody takes it for abandoned."""
    change = {"metadata": {"annotations": {RENEWED: str(int(time.time()))}}}
    api.call("PATCH", path_of("Namespace", "", name), body=change, content_type=MERGE_PATCH)


def remove_namespaces(api: Api, names: tuple[str, ...], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Delete namespaces of ours, end their pods at once, and wait until they are gone; see `await_removal`."""
    delete_namespaces(api, names)
    await_removal(api, names, timeout_s=timeout_s)


def delete_namespaces(api: Api, names: Iterable[str]) -> None:
    """Delete namespaces of ours and end their pods at once; the cluster does it when it comes to it."""
    for name in names:
        try:
            api.call("DELETE", path_of("Namespace", "", name), body={"propagationPolicy": "Background"})
            api.call("DELETE", path_of("Pod", name), body={"gracePeriodSeconds": 1})
        except NotFound:
            continue


def await_removal(api: Api, names: Iterable[str], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Wait until namespaces that were deleted are gone.

    Raises
    ------
    PlatformError
        One is still terminating after `timeout_s`; says what it waits for.
    """
    deadline = time.monotonic() + timeout_s
    for name in names:
        while (found := _find(api, name)) is not None:
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"namespace {name} is still terminating after {timeout_s:g} s ({_why(found)}); "
                    "fix that, then run 'faultset recover --platform kubernetes'"
                )
            time.sleep(_POLL_S)


def remove_volumes(api: Api, namespace: str) -> int:
    """Delete the volumes that were made for a namespace; return how many."""
    answer = api.get(path_of("PersistentVolume", ""), {"labelSelector": f"{APP_NAMESPACE}={namespace}"})
    for item in answer["items"]:
        try:
            api.call("DELETE", path_of("PersistentVolume", "", item["metadata"]["name"]))
        except NotFound:
            continue
    return len(answer["items"])


def ours(api: Api) -> list[dict[str, Any]]:
    """Return all namespaces that episodes have made."""
    selector = ",".join(f"{key}={value}" for key, value in MANAGED.items()) + f",{EPISODE}"
    return api.get(path_of("Namespace", ""), {"labelSelector": selector})["items"]


def await_removal_of_episodes(api: Api, episodes: Collection[str]) -> None:
    """Wait until the namespaces of episodes that were deleted are gone; see `await_removal`."""
    deleted = (found["metadata"] for found in ours(api) if found["metadata"].get("deletionTimestamp"))
    await_removal(api, [found["name"] for found in deleted if found["labels"][EPISODE] in episodes])


def is_abandoned(namespace: Mapping[str, Any]) -> bool:
    """Say whether a namespace of ours has had no heartbeat for so long that its collector must be dead."""
    renewed = (namespace["metadata"].get("annotations") or {}).get(RENEWED, "0")
    return time.time() - float(renewed) > ABANDONED_S


def _find(api: Api, name: str) -> dict[str, Any] | None:
    try:
        return api.get(path_of("Namespace", "", name))
    except NotFound:
        return None


def _why(namespace: Mapping[str, Any]) -> str:
    conditions = namespace.get("status", {}).get("conditions") or []
    said = [c["message"] for c in conditions if c.get("status") == "True" and c.get("message")]
    return "; ".join(said)[:300] or "the cluster does not say why"


_STEP_S = 0.05


class Heartbeat:
    """Renews the namespaces in a thread of its own, so that they count as abandoned when this process is gone.

    Attributes
    ----------
    worst_delay_s
        How late the thread was woken at worst.
    """

    def __init__(self, api: Api, namespaces: EpisodeNamespaces):
        self.worst_delay_s = 0.0
        self._api, self._namespaces = api, namespaces
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to renew."""
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Renew no more; may be called twice."""
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
