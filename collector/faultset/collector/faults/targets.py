"""Selections of services for the `targets` of a fault."""

from __future__ import annotations

from collections.abc import Callable

from faultset.collector.spec.app import AppSpec

Targets = Callable[[AppSpec], tuple[str, ...]]
"""A selection of services of an application."""


def list_internal_services(app: AppSpec) -> tuple[str, ...]:
    """Return the internal services that run the application's own code."""
    return tuple(name for name, service in app.services.items() if service.kind == "logic")


def list_logic_services(app: AppSpec) -> tuple[str, ...]:
    """Return the internal services that have a Deployment."""
    return tuple(name for name in list_internal_services(app) if app.has_deployment(name))


def list_networked_services(app: AppSpec) -> tuple[str, ...]:
    """Return the logic services that have a port and so a Service."""
    return tuple(name for name in list_logic_services(app) if app.services[name].port)


def list_called_services(app: AppSpec) -> tuple[str, ...]:
    """Return the internal services with a port that other services call."""
    callees = {callee for _, callee in app.calls}
    return tuple(name for name in list_internal_services(app) if app.services[name].port and name in callees)


def list_calling_services(app: AppSpec) -> tuple[str, ...]:
    """Return the services with a Deployment, including the entry, that call other services."""
    return tuple(name for name in list_code_services(app) if app.services[name].calls)


def list_callers(app: AppSpec, service: str) -> tuple[str, ...]:
    """Return the services that call a service."""
    return tuple(dict.fromkeys(caller for caller, callee in app.calls if callee == service))


def list_stores_of_requests(app: AppSpec) -> tuple[str, ...]:
    """Return the stores that requests wait for: caches, and databases of services without a cache or an index.

    Stores that no step uses are left out.
    """

    def waits(user: str) -> bool:
        has_cache = any(app.services[store].kind == "cache" for store in app.stores(user))
        return not app.services[user].reads_store_at_start and not has_cache

    return tuple(
        name
        for name, service in app.services.items()
        if (service.kind == "cache" and _users(app, name))
        or (service.kind == "database" and any(waits(user) for user in _users(app, name)))
    )


def _users(app: AppSpec, store: str) -> tuple[str, ...]:
    """Return the services that use a store in a step, and services without known steps."""
    steps = {user: [step for _, step in app.services[user].steps()] for user in app.consumers(store)}
    return tuple(user for user, uses in steps.items() if not uses or any(store in step.stores_used() for step in uses))


def list_own_stores_of_requests(app: AppSpec) -> tuple[str, ...]:
    """Return the stores run by faultset that requests wait for and that have a Deployment."""
    return tuple(
        name
        for name in list_stores_of_requests(app)
        if app.services[name].store_driver is not None and app.has_deployment(name)
    )


def add_stores_of_requests(selection: Targets) -> Targets:
    """Add the stores run by faultset that requests wait for to a selection.

    Databases that would lose their data with the pod are left out.
    """

    def targets(app: AppSpec) -> tuple[str, ...]:
        stores = (app.services[name] for name in list_own_stores_of_requests(app))
        selected_stores = (store.name for store in stores if store.kind == "cache" or store.claim or store.storage)
        return tuple(dict.fromkeys((*selection(app), *selected_stores)))

    return targets


def list_written_stores(app: AppSpec) -> tuple[str, ...]:
    """Return the stores run by faultset to which requests or consumers write."""
    written_names = {
        name for service in app.services.values() for _, step in service.steps() for name in step.stores_written()
    }
    stores = (name for name in app.services if name in written_names and app.services[name].store_driver is not None)
    return tuple(name for name in stores if app.has_deployment(name))


def list_written_databases(app: AppSpec) -> tuple[str, ...]:
    """Return the databases among the written stores."""
    return tuple(name for name in list_written_stores(app) if app.services[name].kind == "database")


def list_consumed_brokers(app: AppSpec) -> tuple[str, ...]:
    """Return the brokers from which services take messages."""
    brokers = {consumer.store for service in app.services.values() for consumer in service.consumers.values()}
    return tuple(name for name in app.services if name in brokers and app.services[name].store_driver is not None)


def list_consuming_services(app: AppSpec, broker: str) -> tuple[str, ...]:
    """Return the services that take messages from a broker; for `also_accepted`."""
    return tuple(
        name
        for name, service in app.services.items()
        if any(consumer.store == broker for consumer in service.consumers.values())
    )


def list_code_services(app: AppSpec) -> tuple[str, ...]:
    """Return all services that run the application's own code and have a Deployment."""
    kinds = ("frontend", "logic")
    return tuple(name for name, service in app.services.items() if service.kind in kinds and app.has_deployment(name))


def list_replicated_frontends(app: AppSpec) -> tuple[str, ...]:
    """Return the frontends with several pods that an operator manages."""
    services = (app.services[name] for name in app.components)
    return tuple(service.name for service in services if service.kind == "frontend" and service.replicas > 1)


def list_components(app: AppSpec) -> tuple[str, ...]:
    """Return the services that an operator creates from a custom resource."""
    return app.components


def list_components_without_volumes(app: AppSpec) -> tuple[str, ...]:
    """Return the components without volumes."""
    return tuple(name for name in app.components if app.services[name].storage is None)


def list_first_component_with_volumes(app: AppSpec) -> tuple[str, ...]:
    """Return the first component with volumes; the operator updates the others after it."""
    return tuple(name for name in app.components if app.services[name].storage is not None)[:1]


def list_operators(app: AppSpec) -> tuple[str, ...]:
    """Return the application's operator if it is one of the application's services."""
    return () if app.operator is None or app.operator.service is None else (app.operator.service,)


def list_store_users(app: AppSpec) -> tuple[str, ...]:
    """Return the logic services that use a database."""
    return tuple(
        name for name in list_logic_services(app) if any(app.services[s].kind == "database" for s in app.stores(name))
    )


def list_databases(app: AppSpec) -> tuple[str, ...]:
    """Return the databases."""
    return tuple(name for name, service in app.services.items() if service.kind == "database")


def list_databases_with_claim(app: AppSpec) -> tuple[str, ...]:
    """Return the databases that keep their data on the volume of a claim."""
    return tuple(name for name in list_databases(app) if app.services[name].claim is not None)


def _list_own_databases(app: AppSpec) -> tuple[str, ...]:
    return tuple(name for name in list_databases(app) if app.services[name].store_driver is not None)


def list_databases_with_password(app: AppSpec) -> tuple[str, ...]:
    """Return the databases whose clients log in with a password."""
    return tuple(name for name in _list_own_databases(app) if app.services[name].auth == "password")


def list_databases_without_password(app: AppSpec) -> tuple[str, ...]:
    """Return the databases whose clients use an account that needs no password."""
    return tuple(name for name in _list_own_databases(app) if app.services[name].auth == "open")


def list_consumer_names(app: AppSpec, store: str) -> tuple[str, ...]:
    """Return the services that use a store; for `also_accepted`, since either may be named as the cause."""
    return tuple(app.consumers(store))
