"""The application of a plan: its stores, and the memory use and background errors that the seed decides.

Memory use is heavy-tailed over services and similar in every episode.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import numpy as np

from faultset.collector.apps import load_app
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
from faultset.collector.spec.containers import METRICS_PORT, Probe
from faultset.collector.spec.features import BackgroundErrors, HeapUse, Language

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

    Raises PlatformError if a server is not installed there, and UsageError if a Python package is missing.
    """
    drivers = _list_originals(app)
    return host.original_servers(sorted(drivers)) if drivers else {}


def _list_originals(app: AppSpec) -> frozenset[str]:
    """Return the names of the drivers of an application's original servers."""
    drivers = {service.store_driver for service in app.services.values() if service.store_driver}
    return frozenset(drivers & {driver.name for driver in ORIGINAL_DRIVERS.values()})


def store_servers(app: AppSpec, originals: Mapping[str, str]) -> dict[str, str]:
    """Return the server of each store of an application; `originals` is the result of `original_servers`."""
    return {
        name: originals.get(service.store_driver, "redis")
        for name, service in app.services.items()
        if service.store_driver
    }


def check_stores(host: PlatformHost, apps: Iterable[AppSpec]) -> list[str]:
    """Check that a host can run the original servers of applications; return messages about replaced stores.

    Raises UsageError or PlatformError as `original_servers` does.
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


_RANGES = {
    "unknown_paths": (0.002, 0.01),
    "impatient_clients": (0.002, 0.008),
    "hasty_calls": (0.001, 0.006),
    "failed_uploads": (0.1, 0.6),
    "rebalances": (0.5, 3.0),
    "slow_phases": (0.2, 1.0),
    "unhealthy_answers": (0.01, 0.04),
}
"""Lowest and highest rate of each kind; rates are log-uniform between them."""
_PROBED_SHARE = 0.3
"""Share of the services that get a readiness probe."""
_PROBE = Probe(path="/healthz", port=METRICS_PORT, every_s=2, failures=4)


def draw_background_errors(seed: int, app: AppSpec) -> BackgroundErrors:
    """Return an application's rates of errors for a seed, independent of the fault."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    rates = {kind: round(float(np.exp(rng.uniform(*np.log(bounds)))), 6) for kind, bounds in _RANGES.items()}
    if app.components:
        rates["hasty_calls"] = 0.0  # the client of a TiDB cluster has different retries
    return BackgroundErrors(**rates)


def with_background_errors(app: AppSpec, seed: int) -> AppSpec:
    """Return the application with background errors and with probes that some of its services sometimes fail.

    An application deployed by others is left unchanged.
    """
    if app.deployed is not None:
        return app
    rng = np.random.default_rng(np.random.SeedSequence([seed, 3]))
    services = {}
    for name, service in app.services.items():
        is_probed = rng.random() < _PROBED_SHARE
        if is_probed and service.exports_metrics and service.runs is None and service.runs_faultset_service:
            service = service.model_copy(update={"readiness": _PROBE})
        services[name] = service
    return app.model_copy(update={"services": services, "background_errors": draw_background_errors(seed, app)})


_MEDIAN_MIB: dict[Language | None, float] = {"go": 10.0, "python": 18.0, "nodejs": 30.0, "jvm": 60.0, None: 6.0}
_SIGMA = 0.7
_GARBAGE_SHARES = {"go": 0.5, "python": 0.1, "nodejs": 0.4, "jvm": 0.5, None: 0.1}
_LARGEST_SHARE = 0.35
"""Largest share of the memory limit for live data; the program itself needs about 70 MiB."""
_LARGEST_MIB = 110.0
_USUAL_LIMIT_MIB = 256


def draw_heap(app: str, service: ServiceSpec, seed: int) -> HeapUse:
    """Return the heap of a service: its name, language and memory limit decide the size; the seed varies it by 10 %."""
    rng = np.random.default_rng(zlib.crc32(f"{app}/{service.name}".encode()))
    live_mib = (
        rng.lognormal(np.log(_MEDIAN_MIB[service.language]), _SIGMA) * service.memory_limit_mib / _USUAL_LIMIT_MIB
    )
    live_mib *= np.random.default_rng([seed, zlib.crc32(service.name.encode())]).uniform(0.9, 1.1)
    live_mib = min(live_mib, _LARGEST_MIB, _LARGEST_SHARE * service.memory_limit_mib)
    garbage_mib = max(1.0, _GARBAGE_SHARES[service.language] * live_mib)
    request_kib = float(rng.lognormal(np.log(60.0), 0.5))
    return HeapUse(live_mib=round(live_mib, 2), garbage_mib=round(garbage_mib, 2), request_kib=round(request_kib, 1))


def with_heaps(app: AppSpec, seed: int) -> AppSpec:
    """Return the application with a heap for each service that faultset implements."""
    services = {
        name: service.model_copy(update={"heap": draw_heap(app.name, service, seed)})
        if service.exports_metrics and service.runs_faultset_service
        else service
        for name, service in app.services.items()
    }
    return app.model_copy(update={"services": services})
