"""Choose the servers that run an application's stores: Redis, or the original servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from faultset.collector.apps import load_app
from faultset.collector.plans.background_errors import with_background_errors
from faultset.collector.plans.heaps import with_heaps
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.hosts import PlatformHost, load_host_class
from faultset.collector.runtime.builds import draw_builds
from faultset.collector.runtime.stores import ORIGINAL_DRIVERS, STORE_DRIVERS
from faultset.collector.spec.app import (
    DEFAULT_IMAGE,
    LONGEST_START_S,
    SHORTEST_START_S,
    AppSpec,
    ServiceSpec,
    StoreChoice,
    Variation,
    chosen_kinds,
)

_REDIS_BY_NAME = ("redis", "valkey")
"""Kinds of stores that are Redis, or speak its protocol."""


def with_stores(app: AppSpec, choice: StoreChoice | None, platform: str = "local") -> AppSpec:
    """Return an application with original servers for stores of the chosen kinds, if the platform supports them."""
    chosen = chosen_kinds(choice, ORIGINAL_DRIVERS)
    if not chosen:
        return app
    kinds = chosen & load_host_class(platform).original_store_kinds
    services = {
        name: _with_original_server(service) if service.store_driver in kinds else service
        for name, service in app.services.items()
    }
    return app.model_copy(update={"services": services})


def _with_original_server(service: ServiceSpec) -> ServiceSpec:
    program, kind, *options = service.program
    return service.model_copy(update={"program": (program, ORIGINAL_DRIVERS[kind].name, *options)})


def original_servers(host: PlatformHost, app: AppSpec) -> dict[str, str]:
    """Return the name and version of an application's original servers on a host, by driver name.

    Raises
    ------
    PlatformError
        A server is not installed there.
    UsageError
        A Python package is missing.
    """
    drivers = _list_originals(app)
    return host.original_servers(sorted(drivers)) if drivers else {}


def _list_originals(app: AppSpec) -> frozenset[str]:
    """Return the names of the drivers of an application's original servers."""
    drivers = {service.store_driver for service in app.services.values() if service.store_driver}
    return frozenset(drivers & {driver.name for driver in ORIGINAL_DRIVERS.values()})


def store_servers(app: AppSpec, originals: Mapping[str, str]) -> dict[str, str]:
    """Return the server of each store of an application, by the store's name.

    Parameters
    ----------
    originals
        Result of `original_servers`.
    """
    return {
        name: originals.get(service.store_driver, "redis")
        for name, service in app.services.items()
        if service.store_driver
    }


def check_stores(host: PlatformHost, apps: Iterable[AppSpec]) -> list[str]:
    """Check that a host can run the original servers of applications; return messages about replaced stores.

    Raises
    ------
    UsageError
        A Python package is missing.
    PlatformError
        A server is missing.
    """
    apps = list(apps)
    originals = {name for app in apps for name in _list_originals(app)}
    if originals:
        host.original_servers(sorted(originals))
    names = {service.store_driver for app in apps for service in app.services.values() if service.store_driver}
    replaced_kinds = sorted((names & STORE_DRIVERS.keys()) - originals - {*_REDIS_BY_NAME})
    if not replaced_kinds:
        return []
    return [f"Redis replaces the servers of the stores {' and '.join(replaced_kinds)}; see --stores"]


def planned_app(plan: Plan) -> AppSpec:
    """Return the application of a plan, with the plan's stores and everything that the plan's seed decides."""
    app = with_stores(load_app(plan.app_file or plan.app), plan.stores, plan.platform)
    seed = int(np.random.SeedSequence([plan.seed, 1]).generate_state(1)[0]) or 1
    longest_s = min(LONGEST_START_S, plan.phases.fault_s / 3)
    repository = app.image.rpartition(":")[0]
    return with_background_errors(with_heaps(app, plan.seed), plan.seed).with_variation(
        Variation(seed=seed, longest_start_s=max(longest_s, 2 * SHORTEST_START_S)),
        f"{repository}:{draw_builds(seed).healthy[0]}" if app.image == DEFAULT_IMAGE else app.image,
    )


def check_planned_stores(host: PlatformHost, plans: Iterable[Plan]) -> list[str]:
    """Check that a host can run the stores of plans; see `check_stores`."""
    choices = {
        (plan.app_file or plan.app, plan.stores, plan.platform): plan for plan in plans if plan.stores is not None
    }
    return check_stores(host, (planned_app(plan) for plan in choices.values()))
