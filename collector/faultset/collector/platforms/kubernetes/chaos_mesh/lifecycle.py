"""Experiments on a cluster: made, waited for, and removed, also when their finalizers hang."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.client import MERGE_PATCH, Api, NotFound, path_of
from faultset.collector.platforms.kubernetes.api.namespaces import MANAGED
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import PLURALS, RESOURCES, path_of_experiment
from faultset.collector.platforms.kubernetes.chaos_mesh.status import (
    disturbed_pods,
    failure_of,
    is_injected,
    selected_pods,
)
from faultset.core.errors import PlatformError

INJECTION_TIMEOUT_S = 20.0
REMOVAL_TIMEOUT_S = 20.0
POD_RESOURCES = ("podnetworkchaos", "podhttpchaos")
"""What Chaos Mesh writes for a single pod; a failing rule in it makes every later experiment on the pod fail."""
_POLL_S = 0.3

logger = logging.getLogger(__name__)


def inject(api: Api, wanted: Object, *, timeout_s: float = INJECTION_TIMEOUT_S) -> Object:
    """Make an experiment and return it once it acts.

    Raises
    ------
    PlatformError
        Chaos Mesh refuses it, or does not inject it in time; nothing of it is left then.
    """
    kind, namespace, name = wanted["kind"], wanted["metadata"]["namespace"], wanted["metadata"]["name"]
    api.post(path_of_experiment(kind, namespace), wanted)
    try:
        return _await_injection(api, path_of_experiment(kind, namespace, name), timeout_s)
    except BaseException:
        with contextlib.suppress(PlatformError):
            remove(api, [wanted])
        raise


def remove(api: Api, experiments: Iterable[Object], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Remove experiments and wait until what they do has ended; those that are gone already are passed over.

    The finalizers of one that does not go in time are taken away, with what Chaos Mesh has written for its pods. Pods
    that it may still disturb then are deleted, and their owners replace them.
    """
    leaving: list[str] = []
    for one in experiments:
        path = path_of_experiment(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"])
        try:
            api.call("DELETE", path)
        except NotFound:
            continue
        leaving.append(path)
    deadline = time.monotonic() + timeout_s
    for path in leaving:
        while (found := _find(api, path)) is not None:
            if time.monotonic() > deadline:
                _take_away(api, path, found)
                break
            time.sleep(_POLL_S)


def remove_all(api: Api, namespace: str, *, timeout_s: float = REMOVAL_TIMEOUT_S) -> int:
    """Remove all experiments of ours that lie in a namespace; return how many there were."""
    selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in MANAGED.items())}
    found: list[Object] = []
    for kind in PLURALS:
        try:
            items = api.get(path_of_experiment(kind, namespace), selector)["items"]
        except NotFound:
            continue
        found += [{**item, "kind": kind} for item in items]
    remove(api, found, timeout_s=timeout_s)
    return len(found)


def _await_injection(api: Api, path: str, timeout_s: float) -> Object:
    deadline = time.monotonic() + timeout_s
    while True:
        found = api.get(path)
        if is_injected(found):
            return found
        if time.monotonic() > deadline:
            said = failure_of(found) or "it says nothing about it; look at the logs of its controller and daemons"
            pods = ", ".join(name for _, name in selected_pods(found))
            action = " ".join(filter(None, [found["kind"], found["spec"].get("action")]))
            raise PlatformError(f"Chaos Mesh did not inject {action} into {pods} within {timeout_s:g} s: {said}")
        time.sleep(_POLL_S)


def _take_away(api: Api, path: str, found: Object) -> None:
    pods = disturbed_pods(found)
    logger.warning(
        "Chaos Mesh did not end %s (%s); its finalizers are taken away%s",
        found["metadata"]["name"],
        failure_of(found) or "no reason is given",
        f" and the pods {', '.join(pods)} are replaced" if pods else "",
    )
    with contextlib.suppress(NotFound):
        api.call("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    for namespace, pod in selected_pods(found):
        for plural in POD_RESOURCES:
            with contextlib.suppress(NotFound):
                api.call("DELETE", f"{RESOURCES}/namespaces/{namespace}/{plural}/{pod}")
        if pod in pods:
            with contextlib.suppress(NotFound):
                api.call("DELETE", path_of("Pod", namespace, pod), body={"gracePeriodSeconds": 1})


def _find(api: Api, path: str) -> Object | None:
    try:
        return api.get(path)
    except NotFound:
        return None
