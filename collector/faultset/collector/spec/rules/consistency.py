"""What a spec may not say although every field of it is right by itself."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.containers import METRICS_PORT
from faultset.collector.spec.routes import find_route
from faultset.collector.spec.rules.configuration import (
    configuration_problems,
    container_problems,
    files_of,
    variables_of,
)
from faultset.collector.spec.steps import Place, all_steps

PROGRAMS = ("faultset-service", "faultset-store")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?")


class Problem(NamedTuple):
    """Something that is wrong with a spec: where in it, and a sentence."""

    place: Place
    reason: str


def problems(app: AppSpec) -> Iterator[Problem]:
    """Yield what is inconsistent in a spec, the most basic first."""
    yield from _top_level(app)
    for service in app.services.values():
        if app.deployed is None:
            yield from _containers(app, service)
        yield from _relations(app, service)
        if app.deployed is None:
            yield from _workload(app, service)
    if app.deployed is None:
        yield from _claimed_twice(app)
        yield from _call_cycle(app)
        yield from _waiting_cycle(app)
        yield from _entry(app)


def _unknown(place: Place, name: str, known: Collection[str]) -> Iterator[Problem]:
    if name not in known:
        yield Problem(place, f"it names {name!r}, which is not among {', '.join(sorted(known)) or 'none'}")


def _top_level(app: AppSpec) -> Iterator[Problem]:
    for name in (app.name, *app.services):
        place = ("name",) if name == app.name else ("services", name)
        if app.deployed is None and not _NAME.fullmatch(name):
            yield Problem(place, f"a name has lower-case letters, digits and hyphens, 53 at most; found {name!r}")
    yield from _unknown(("entry",), app.entry.service, app.services)
    yield from _unknown(("default_mix",), app.default_mix, app.mixes)
    if app.registry is not None:
        yield from _unknown(("registry",), app.registry, app.services)
    yield from _flags(app)
    yield from _operator(app)
    yield from (Problem(*found) for found in configuration_problems(app))
    for name, mix in app.mixes.items():
        for request in mix.shares:
            yield from _unknown(("mixes", name, "shares"), request, app.requests)


def _flags(app: AppSpec) -> Iterator[Problem]:
    if app.flags is None:
        return
    provider, operation = app.flags.provider, app.flags.operation
    if provider is not None and operation is not None:
        yield from _unknown(("flags", "provider"), provider, app.services)
        if provider in app.services and app.deployed is None:
            yield from _unknown(("flags", "operation"), operation, app.services[provider].operations)
    for name, flag in app.flags.flags.items():
        yield from _unknown(("flags", "flags", name, "service"), flag.service, app.services)


def _operator(app: AppSpec) -> Iterator[Problem]:
    if app.operator is None:
        return
    if app.operator.service is not None:
        yield from _unknown(("operator", "service"), app.operator.service, app.services)
    elif app.deployed is None:
        yield Problem(("operator", "service"), "it needs the service that runs the operator, since we deploy it")
    for number, component in enumerate(app.operator.components):
        place = ("operator", "components", number)
        yield from _unknown(place, component, app.services)
        if component == app.operator.service:
            yield Problem(place, f"{component} cannot make itself; name the services that it makes")
        elif component in app.services and not app.services[component].stateful:
            yield Problem(place, f"{component} must be stateful, since an operator makes StatefulSets")


def _containers(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    place: Place = ("services", service.name)
    yield from (Problem(*found) for found in container_problems(app, service, place))
    names = {service.container}
    for number, init in enumerate(service.init):
        where = (*place, "init", number)
        yield from (Problem(*found) for found in container_problems(app, init, where))
        if not _NAME.fullmatch(init.name):
            yield Problem(where, f"a name has lower-case letters, digits and hyphens, 53 at most; found {init.name!r}")
        if init.name in names:
            yield Problem(where, f"another container of {service.name} is called {init.name!r}; name one differently")
        names.add(init.name)
        if init.wait_for is not None:
            yield from _waits_for(app, service, where, init.wait_for)
        elif "/" not in init.program[0] and init.image is None:
            yield Problem(
                (*where, "program"),
                f"{init.program[0]!r} is no program of the image; name one with an absolute path, or an image",
            )


def _waits_for(app: AppSpec, service: ServiceSpec, where: Place, awaited: str) -> Iterator[Problem]:
    yield from _unknown((*where, "wait_for"), awaited, app.services)
    if awaited == service.name:
        yield Problem((*where, "wait_for"), f"{service.name} would wait for itself; name another service")
    elif awaited in app.services and not app.services[awaited].port:
        yield Problem((*where, "wait_for"), f"{awaited} has no port to which a connection could be made")


def _relations(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    place = ("services", service.name)
    for store in service.stores:
        yield from _unknown((*place, "stores"), store, app.services)
    for kind, rules in (("seeds", service.seeds), ("indexes", tuple(service.indexes.values()))):
        for rule in rules:
            yield from _unknown((*place, kind), rule.store, service.stores)
            if rule.store in app.services:
                yield from _unknown((*place, kind), rule.collection, app.services[rule.store].collections)
    for callee in service.callees:
        yield from _unknown((*place, "callees"), callee, app.services)
    for callee in service.breakers:
        yield from _unknown((*place, "breakers", callee), callee, service.calls)
    for name, consumer in service.consumers.items():
        yield from _unknown((*place, "consumers", name, "store"), consumer.store, service.stores)
    for inside, step in service.steps():
        inner = (*place, *inside)
        for store in step.stores_used():
            yield from _unknown(inner, store, service.stores)
        for index in step.indexes_used():
            yield from _unknown(inner, index, service.indexes)
        for flag in step.flags_read():
            yield from _unknown(inner, flag, app.flags.flags if app.flags else ())
        for variable in step.variables_read():
            yield from _unknown(inner, variable, variables_of(app, service))
        for file in step.files_read():
            yield from _unknown(inner, file, files_of(app, service))
        for call in step.operations_called():
            yield from _unknown(inner, call.service, app.services)
            if call.service in app.services:
                yield from _unknown(inner, call.operation, app.services[call.service].operations)


def _workload(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    place = ("services", service.name)
    if not (service.container and service.program):
        yield Problem(place, "it needs container and program, since we deploy it")
        return
    if not service.port and (service.operations or not service.background):
        yield Problem(place, "it needs a port, since only a service with nothing but consumers or tasks has none")
    yield from _pods(app, service)
    program, *arguments = service.program
    if "/" not in program and program not in PROGRAMS and service.image is None:
        yield Problem(
            (*place, "program"),
            f"{program!r} is not in the image; a program is {' or '.join(PROGRAMS)}, an absolute path, or one of an "
            "image of its own (field image)",
        )
    if program == "faultset-service":
        yield from _unknown((*place, "program"), arguments[0] if arguments else "", app.services)
        if service.port == METRICS_PORT:
            yield Problem((*place, "port"), f"port {METRICS_PORT} is used twice: services export their metrics there")


def _pods(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    place = ("services", service.name)
    if service.claim and service.replicas > 1 and not service.stateful:
        yield Problem((*place, "replicas"), "a claim belongs to one pod; make the service stateful, with storage")
    if service.claim and service.stateful:
        yield Problem((*place, "claim"), "each pod of a stateful service has a claim of its own; give storage instead")
    if service.storage is not None and not service.stateful:
        yield Problem((*place, "storage"), "only a stateful service has storage; give a claim, or make it stateful")
    if service.stateful and not service.port:
        yield Problem((*place, "stateful"), "it needs a port, behind which its pods have names")
    if service.stateful and service.peers in app.services:
        yield Problem((*place, "stateful"), f"its pods have names behind {service.peers!r}, which is another service")
    for field, probe in (("readiness", service.readiness), ("liveness", service.liveness)):
        if probe is not None and not (probe.port or service.port):
            yield Problem((*place, field), "it needs a port that is asked")


def _claimed_twice(app: AppSpec) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for service in app.services.values():
        if service.claim is not None:
            owner = owners.setdefault(service.claim, service.name)
            if owner != service.name:
                yield Problem(("services", service.name, "claim"), f"{owner} has the claim {service.claim!r} too")


def _call_cycle(app: AppSpec) -> Iterator[Problem]:
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for service in app.services.values():
        for name, operation in service.operations.items():
            for _, step in all_steps(operation.steps):
                for call in step.operations_called():
                    callers.setdefault((call.service, call.operation), set()).add((service.name, name))
    try:
        graphlib.TopologicalSorter(callers).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
        path = " calls ".join(f"{service} {operation}" for service, operation in circle)
        service, operation = circle[0]
        yield Problem(("services", service, "operations", operation), f"calls go round in a circle: {path}")


def _waiting_cycle(app: AppSpec) -> Iterator[Problem]:
    awaited = {
        service.name: [init.wait_for for init in service.init if init.wait_for in app.services]
        for service in app.services.values()
    }
    try:
        graphlib.TopologicalSorter(awaited).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
        path = " for ".join(reversed(circle))
        yield Problem(("services", circle[0], "init"), f"init containers wait in a circle, so that none starts: {path}")


def _entry(app: AppSpec) -> Iterator[Problem]:
    entry = app.services.get(app.entry.service)
    if entry is None:
        return
    if entry.port and entry.port != app.entry.port:
        yield Problem(("entry",), f"{entry.name} listens on port {entry.port}, not on {app.entry.port}")
    if entry.program[:1] != ("faultset-service",) or entry.runs is not None:
        return
    for name, request in app.requests.items():
        if find_route(request.path, entry.operations, request.method) is None:
            served = ", ".join(entry.operations) or "nothing"
            yield Problem(
                ("requests", name, "path"), f"{entry.name} does not serve {request.endpoint}; it serves {served}"
            )
