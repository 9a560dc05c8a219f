"""The servers that run the stores of an application: Redis in their place, or their own; and those of plans."""

from __future__ import annotations

from collections.abc import Iterable

from faultset.collector.apps import load_app
from faultset.collector.plans.plan import Plan
from faultset.collector.runtime.stores.drivers import ORIGINAL_DRIVERS, STORE_DRIVERS
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.store_choices import REDIS_STORES

_REDIS_BY_NAME = ("redis", "valkey")
"""Roles that are Redis' own, or of a server with its protocol."""


def with_stores(app: AppSpec, choice: str | None) -> AppSpec:
    """Return an application whose stores are the chosen ones; of an original kind wherever there is a driver for it."""
    if choice is None or choice == REDIS_STORES:
        return app
    services = {
        name: service.model_copy(
            update={"program": (service.program[0], ORIGINAL_DRIVERS[service.store_driver].name, *service.program[2:])}
        )
        if service.store_driver in ORIGINAL_DRIVERS
        else service
        for name, service in app.services.items()
    }
    return app.model_copy(update={"services": services})


def store_servers(app: AppSpec) -> dict[str, str]:
    """Return which server each store of an application runs, by the store's name.

    Raises
    ------
    PlatformError
        An original server is not installed.
    """
    originals = {driver.name: driver for driver in ORIGINAL_DRIVERS.values()}
    drivers = {name: service.store_driver for name, service in app.services.items() if service.store_driver}
    versions = {name: originals[name].version() for name in set(drivers.values()) & originals.keys()}
    return {store: versions.get(name, "redis") for store, name in drivers.items()}


def check_stores(apps: Iterable[AppSpec]) -> list[str]:
    """See whether the original servers of applications can run here, and return what is to be said of the others.

    Raises
    ------
    UsageError
        A Python package is missing.
    PlatformError
        A server is missing.
    """
    names = {service.store_driver for app in apps for service in app.services.values() if service.store_driver}
    for driver in ORIGINAL_DRIVERS.values():
        if driver.name in names:
            driver.check()
    replaced = sorted(
        name
        for name in names & STORE_DRIVERS.keys()
        if name not in _REDIS_BY_NAME and name not in {driver.name for driver in ORIGINAL_DRIVERS.values()}
    )
    if not replaced:
        return []
    return [
        f"stores of the kind {' and '.join(replaced)} are played by Redis all the same: there is no driver of an "
        "original server for them"
    ]


def planned_app(plan: Plan) -> AppSpec:
    """Return the application of a plan, with the stores that the plan asks for."""
    return with_stores(load_app(plan.app_file or plan.app), plan.stores)


def check_planned_stores(plans: Iterable[Plan]) -> list[str]:
    """See whether the stores of plans can run here; see `check_stores`."""
    asked = {(plan.app_file or plan.app, plan.stores): plan for plan in plans if plan.stores is not None}
    return check_stores(planned_app(plan) for plan in asked.values())
