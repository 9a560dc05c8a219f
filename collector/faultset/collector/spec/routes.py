"""Match request paths to operations, whose paths may have parameters in braces: `/product/{id}`.

A parameter matches everything except a slash. With a method before the path (`POST /cart`), an operation serves only
that method.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.steps import all_steps


class Route(NamedTuple):
    """The operation that serves a path, and the values of its path parameters."""

    operation: str
    values: dict[str, str]


@functools.cache
def _build_pattern(operation: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", operation)
    return re.compile(
        "".join(f"(?P<{piece}>[^/]+)" if index % 2 else re.escape(piece) for index, piece in enumerate(parts))
    )


def find_route(path: str, operations: Iterable[str], method: str | None = None) -> Route | None:
    """Return the operation that serves a path, preferring one without braces; None if there is none.

    Operations with the method of the request take precedence over operations without a method.
    """
    names = tuple(operations)
    if method is not None:
        route = find_route(f"{method} {path}", names)
        if route is not None:
            return route
    if path in names:
        return Route(path, {})
    for name in names:
        if "{" in name and (match := _build_pattern(name).fullmatch(path)):
            return Route(name, match.groupdict())
    return None


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
