"""Find the services that an application's requests can reach."""

from __future__ import annotations

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.routes import find_route
from faultset.collector.spec.steps import all_steps


def services_reached(app: AppSpec) -> dict[str, frozenset[str]]:
    """Return the services and stores, including the entry, that requests to each endpoint can reach.

    The stores and declared callees of a reached service are reached, too. If an operation is unknown, everything that
    its service calls, directly or not, counts as reached.

    >>> from faultset.collector.apps import load_app
    >>> sorted(services_reached(load_app("hotel"))["GET /recommendations"])
    ['frontend', 'memcached-profile', 'mongodb-profile', 'mongodb-recommendation', 'profile', 'recommendation']
    """
    entry = app.services[app.entry.service]
    reached = {}
    for request in app.requests.values():
        route = find_route(request.path, entry.operations, request.method)
        if route is None:
            reached[request.endpoint] = _list_all_below(app, entry.name)
        else:
            services: set[str] = set()
            _visit(app, entry.name, route.operation, services, set())
            reached[request.endpoint] = frozenset(services)
    return reached


def _visit(app: AppSpec, service: str, operation: str, services: set[str], visited: set[tuple[str, str]]) -> None:
    if (service, operation) in visited or service not in app.services:
        return
    visited.add((service, operation))
    spec = app.services[service]
    services.update((service, *spec.stores))
    for callee in spec.callees:
        services.update(_list_all_below(app, callee))
    definition = spec.operations.get(operation)
    if definition is None:
        services.update(_list_all_below(app, service))
        return
    for _, step in all_steps(definition.steps):
        for call in step.operations_called():
            _visit(app, call.service, call.operation, services, visited)


def _list_all_below(app: AppSpec, service: str) -> frozenset[str]:
    reached, pending = {service}, [service]
    while pending:
        current = pending.pop()
        new = {callee for caller, callee in app.calls if caller == current} - reached
        reached |= new
        pending += new
    return frozenset(reached)
