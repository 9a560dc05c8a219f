"""Which services the requests of an application can reach."""

from __future__ import annotations

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.routes import find_route
from faultset.collector.spec.steps import all_steps


def services_reached(app: AppSpec) -> dict[str, frozenset[str]]:
    """Return for each endpoint the services and stores that its requests can reach, the entry included.

    A service that is reached brings its stores and the callees that are declared for it. Where the entry's operations
    are not known, its requests can reach all that is called.

    >>> from faultset.collector.apps import load_app
    >>> sorted(services_reached(load_app("hotel"))["GET /recommendations"])
    ['frontend', 'memcached-profile', 'mongodb-profile', 'mongodb-recommendation', 'profile', 'recommendation']
    """
    entry = app.services[app.entry.service]
    reached = {}
    for request in app.requests.values():
        found = find_route(request.path, entry.operations, request.method)
        if found is None:
            reached[request.endpoint] = _all_below(app, entry.name)
        else:
            services: set[str] = set()
            _visit(app, entry.name, found.operation, services, set())
            reached[request.endpoint] = frozenset(services)
    return reached


def _visit(app: AppSpec, service: str, operation: str, services: set[str], visited: set[tuple[str, str]]) -> None:
    if (service, operation) in visited or service not in app.services:
        return
    visited.add((service, operation))
    spec = app.services[service]
    services.update((service, *spec.stores))
    for callee in spec.callees:
        services.update(_all_below(app, callee))
    known = spec.operations.get(operation)
    if known is None:
        services.update(_all_below(app, service))
        return
    for _, step in all_steps(known.steps):
        for call in step.operations_called():
            _visit(app, call.service, call.operation, services, visited)


def _all_below(app: AppSpec, service: str) -> frozenset[str]:
    found, waiting = {service}, [service]
    while waiting:
        caller = waiting.pop()
        new = {callee for one, callee in app.calls if one == caller} - found
        found |= new
        waiting += new
    return frozenset(found)
