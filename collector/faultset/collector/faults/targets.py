"""Which services a fault can be applied to, and the objects behind a service."""

from __future__ import annotations

from faultset.collector.platforms.api.platform import Object, Platform
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError


def logic_services(app: AppSpec) -> tuple[str, ...]:
    """Return the services that others call and that run the application's own code."""
    return tuple(name for name, service in app.services.items() if service.kind == "logic")


def code_services(app: AppSpec) -> tuple[str, ...]:
    """Return all services that run the application's own code."""
    return tuple(name for name, service in app.services.items() if service.kind in ("frontend", "logic"))


def store_users(app: AppSpec) -> tuple[str, ...]:
    """Return the services that connect to a database of theirs when they start."""
    return tuple(
        name for name in logic_services(app) if any(app.services[s].kind == "database" for s in app.stores(name))
    )


def databases(app: AppSpec) -> tuple[str, ...]:
    """Return the stores that keep data on a volume."""
    return tuple(name for name, service in app.services.items() if service.kind == "database")


def databases_with_password(app: AppSpec) -> tuple[str, ...]:
    """Return the databases whose clients log in with a password."""
    return tuple(name for name in databases(app) if app.services[name].auth == "password")


def databases_without_password(app: AppSpec) -> tuple[str, ...]:
    """Return the databases whose clients use an account that needs no password."""
    return tuple(name for name in databases(app) if app.services[name].auth == "open")


def consumer_names(app: AppSpec, store: str) -> tuple[str, ...]:
    """Return the services that use a store: operators and benchmarks name either as the culprit."""
    return tuple(app.consumers(store))


def pods_of(platform: Platform, service: str) -> list[Object]:
    """Return the pods of a service that are not being deleted, newest last."""
    pods = platform.list("Pod", {platform.app.label_key: service})
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return sorted(alive, key=lambda pod: pod["metadata"]["creationTimestamp"])


def pod_of(platform: Platform, service: str) -> str:
    """Return the name of the newest pod of a service.

    Raises
    ------
    PlatformError
        The service has none.
    """
    pods = pods_of(platform, service)
    if not pods:
        raise PlatformError(f"{service} has no pod to act on")
    return pods[-1]["metadata"]["name"]


def container_status(platform: Platform, service: str) -> dict:
    """Return the status of the newest pod's first container, or an empty dict when there is none."""
    pods = pods_of(platform, service)
    statuses = pods[-1].get("status", {}).get("containerStatuses", []) if pods else []
    return statuses[0] if statuses else {}


def last_end(status: dict) -> dict:
    """Return how a container ended last (exit code, reason), or an empty dict when it never did."""
    return status.get("lastState", {}).get("terminated") or status.get("state", {}).get("terminated") or {}
