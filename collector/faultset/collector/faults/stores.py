"""Administer stores and restart their consumers, for faults in credentials and volumes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.collector.faults.deployments import get_pod_name, last_end, last_error_line, list_pods
from faultset.collector.platforms.base import Platform
from faultset.collector.runtime.stores import store_driver
from faultset.collector.runtime.stores.driver import EMPTY_STORE, AdminChange, Capability, StoreDriver
from faultset.collector.runtime.stores.server import admin_command
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS


def get_driver(app: AppSpec, store: str) -> StoreDriver:
    name = app.service(store).store_driver
    assert name is not None
    return store_driver(name)


def stores_with_capability(
    capability: Capability, candidates: Callable[[AppSpec], tuple[str, ...]]
) -> Callable[[AppSpec], tuple[str, ...]]:
    """Limit a selection to the stores that have a capability."""

    def targets(app: AppSpec) -> tuple[str, ...]:
        return tuple(name for name in candidates(app) if capability in get_driver(app, name).capabilities)

    return targets


def get_account(app: AppSpec, store: str) -> str:
    return get_driver(app, store).account_name(password=app.services[store].auth == "password")


def administer(platform: Platform, store: str, change: AdminChange) -> str:
    """Make a change as the administrator inside a store's pod, and register its undo; return the pod's name."""
    return act_as_administrator(platform, store, (change.action,), (change.undo,))


def administrator_argv(app: AppSpec, store: str, verb: str, *options: str) -> list[str]:
    """Return the command of an administrator inside a store's pod."""
    service = app.services[store]
    return admin_command(
        get_driver(app, store).name, verb, *options, port=service.port, password=service.auth == "password"
    )


def act_as_administrator(platform: Platform, store: str, words: Sequence[str], undo: Sequence[str]) -> str:
    """Run a command as the administrator inside a store's pod, and register its undo; return the pod's name."""
    pod, app = get_pod_name(platform, store), platform.app
    platform.exec(pod, administrator_argv(app, store, *words), undo=administrator_argv(app, store, *undo))
    return pod


def store_state(platform: Platform, store: str, *words: str) -> dict[str, Any]:
    """Return the operations that a store reports as refused, and its limits; empty if it does not respond."""
    argv = administrator_argv(platform.app, store, "state", *words)
    try:
        text = platform.exec(get_pod_name(platform, store), argv)
        return json.loads(text or "{}")
    except (PlatformError, ValueError):
        return {}


def flush_caches(platform: Platform, store: str) -> tuple[str, ...]:
    """Empty the caches in front of a store, now and when the fault is undone; return their names.

    Otherwise a cache would hide the failing store, and keep entries from the time of the fault.
    """
    app = platform.app
    caches = sorted(
        {c for consumer in app.consumers(store) for c in app.stores(consumer) if app.services[c].kind == "cache"}
    )
    for cache in caches:
        administer(platform, cache, EMPTY_STORE)
    return tuple(caches)


def restart_consumers(platform: Platform, store: str) -> tuple[str, ...]:
    """Delete the pods of all services that use a store, so that they log in and read again."""
    consumers = tuple(platform.app.consumers(store))
    for consumer in consumers:
        for pod in list_pods(platform, consumer):
            platform.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
    return consumers


@dataclass(frozen=True, kw_only=True)
class PodFailure:
    """The last exit of a pod with an error."""

    pod: str
    restarts: int
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class EarlierFailures:
    """Failures of services that happened before an injection."""

    time_ns: int
    """Time at which the failures were read."""
    failures: Mapping[str, PodFailure]
    """Failures by pod uid; a StatefulSet gives a recreated pod the name of the deleted one."""


def observe_consumers(platform: Platform, target: str) -> EarlierFailures:
    """Return the failures of a store's consumers so far."""
    return _observe(platform, platform.app.consumers(target))


def observe_service(platform: Platform, target: str) -> EarlierFailures:
    """Return the failures of a service so far."""
    return _observe(platform, (target,))


def _observe(platform: Platform, services: Sequence[str]) -> EarlierFailures:
    return EarlierFailures(time_ns=time.time_ns(), failures=_read_failures(platform, services))


def _read_failures(platform: Platform, services: Sequence[str]) -> dict[str, PodFailure]:
    return {
        pod["metadata"]["uid"]: PodFailure(
            pod=pod["metadata"]["name"], restarts=status.get("restartCount", 0), exit_code=last_end(status)["exitCode"]
        )
        for service in services
        for pod in list_pods(platform, service)
        for status in pod.get("status", {}).get("containerStatuses", [])
        if last_end(status).get("exitCode")
    }


def consumer_fails(
    platform: Platform, target: str, parameters: Mapping[str, Any], before: EarlierFailures
) -> str | None:
    """Return how a consumer of a store has failed since the injection, or None.

    The injection recreates the consumers' pods, so all their log lines are newer than the fault.
    """
    return _find_failure(platform, platform.app.consumers(target), parameters["restarted"], before)


def find_service_failure(
    platform: Platform, target: str, parameters: Mapping[str, Any], before: EarlierFailures
) -> str | None:
    """Return how a restarted service has failed since the injection, or None."""
    return _find_failure(platform, (target,), (target,), before)


def _find_failure(
    platform: Platform, services: Sequence[str], restarted: Sequence[str], before: EarlierFailures
) -> str | None:
    for uid, failure in _read_failures(platform, services).items():
        if uid not in before.failures or failure.restarts > before.failures[uid].restarts:
            return f"{failure.pod} exited with code {failure.exit_code}"
    window_s = (time.time_ns() - before.time_ns) / SECOND_NS
    for service in restarted:
        for pod in list_pods(platform, service):
            line = last_error_line(platform, pod["metadata"]["name"], window_s=window_s)
            if line is not None:
                return f"{pod['metadata']['name']} logs: {line}"
    return None
