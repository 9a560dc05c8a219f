"""Check the consistency of a spec across its fields."""

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
    list_mounted_files,
    list_variables,
)
from faultset.collector.spec.steps import FieldPath, all_steps
from faultset.core.printable import describe_choices

PROGRAMS = ("faultset-service", "faultset-store")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?")


class Problem(NamedTuple):
    """A problem of a spec: the path of a field, and one sentence."""

    path: FieldPath
    reason: str


def problems(app: AppSpec) -> Iterator[Problem]:
    """Yield the inconsistencies of a spec, the most basic first."""
    yield from _check_top_level(app)
    for service in app.services.values():
        if app.deployed is None:
            yield from _check_containers(app, service)
        yield from _check_relations(app, service)
        if app.deployed is None:
            yield from _check_workload(app, service)
    if app.deployed is None:
        yield from _check_claims(app)
        yield from _check_call_cycle(app)
        yield from _check_wait_cycle(app)
        yield from _check_entry(app)


def _check_name(path: FieldPath, name: str, known: Collection[str]) -> Iterator[Problem]:
    if name not in known:
        yield Problem(path, f"unknown name {name!r}, {describe_choices(sorted(known))}")


def _check_top_level(app: AppSpec) -> Iterator[Problem]:
    for name in (app.name, *app.services):
        path = ("name",) if name == app.name else ("services", name)
        if app.deployed is None and not _NAME.fullmatch(name):
            yield Problem(path, f"a name must be at most 53 lower-case letters, digits and hyphens, got {name!r}")
    yield from _check_name(("entry",), app.entry.service, app.services)
    yield from _check_name(("default_mix",), app.default_mix, app.mixes)
    if app.registry is not None:
        yield from _check_name(("registry",), app.registry, app.services)
    yield from _check_flags(app)
    yield from _check_operator(app)
    yield from (Problem(*problem) for problem in configuration_problems(app))
    for name, mix in app.mixes.items():
        for request in mix.shares:
            yield from _check_name(("mixes", name, "shares"), request, app.requests)


def _check_flags(app: AppSpec) -> Iterator[Problem]:
    if app.flags is None:
        return
    provider, operation = app.flags.provider, app.flags.operation
    if provider is not None and operation is not None:
        yield from _check_name(("flags", "provider"), provider, app.services)
        if provider in app.services and app.deployed is None:
            yield from _check_name(("flags", "operation"), operation, app.services[provider].operations)
    for name, flag in app.flags.flags.items():
        yield from _check_name(("flags", "flags", name, "service"), flag.service, app.services)


def _check_operator(app: AppSpec) -> Iterator[Problem]:
    if app.operator is None:
        return
    if app.operator.service is not None:
        yield from _check_name(("operator", "service"), app.operator.service, app.services)
    elif app.deployed is None:
        yield Problem(
            ("operator", "service"), "an application that is not yet deployed must name the operator's service"
        )
    for number, component in enumerate(app.operator.components):
        path = ("operator", "components", number)
        yield from _check_name(path, component, app.services)
        if component == app.operator.service:
            yield Problem(path, f"the operator {component} cannot create itself; list only the services it creates")
        elif component in app.services and not app.services[component].stateful:
            yield Problem(path, f"{component} must be stateful, because an operator creates StatefulSets")


def _check_containers(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    path: FieldPath = ("services", service.name)
    yield from (Problem(*problem) for problem in container_problems(app, service, path))
    names = {service.container}
    for number, init in enumerate(service.init):
        init_path = (*path, "init", number)
        yield from (Problem(*problem) for problem in container_problems(app, init, init_path))
        if not _NAME.fullmatch(init.name):
            yield Problem(
                init_path, f"a name must be at most 53 lower-case letters, digits and hyphens, got {init.name!r}"
            )
        if init.name in names:
            yield Problem(init_path, f"another container of {service.name} has the name {init.name!r}; rename one")
        names.add(init.name)
        if init.wait_for is not None:
            yield from _check_wait(app, service, init_path, init.wait_for)
        elif "/" not in init.program[0] and init.image is None:
            yield Problem(
                (*init_path, "program"),
                f"{init.program[0]!r} is not in the image; give an absolute path, or an image that has it",
            )


def _check_wait(app: AppSpec, service: ServiceSpec, init_path: FieldPath, awaited: str) -> Iterator[Problem]:
    yield from _check_name((*init_path, "wait_for"), awaited, app.services)
    if awaited == service.name:
        yield Problem((*init_path, "wait_for"), f"{service.name} cannot wait for itself; name another service")
    elif awaited in app.services and not app.services[awaited].port:
        yield Problem((*init_path, "wait_for"), f"{awaited} must have a port to be waited for")


def _check_relations(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    path = ("services", service.name)
    for store in service.stores:
        yield from _check_name((*path, "stores"), store, app.services)
    for kind, rules in (("seeds", service.seeds), ("indexes", tuple(service.indexes.values()))):
        for rule in rules:
            yield from _check_name((*path, kind), rule.store, service.stores)
            if rule.store in app.services:
                yield from _check_name((*path, kind), rule.collection, app.services[rule.store].collections)
    for callee in service.callees:
        yield from _check_name((*path, "callees"), callee, app.services)
    for callee in service.breakers:
        yield from _check_name((*path, "breakers", callee), callee, service.calls)
    for name, consumer in service.consumers.items():
        yield from _check_name((*path, "consumers", name, "store"), consumer.store, service.stores)
    for relative_path, step in service.steps():
        step_path = (*path, *relative_path)
        for store in step.stores_used():
            yield from _check_name(step_path, store, service.stores)
        for index in step.indexes_used():
            yield from _check_name(step_path, index, service.indexes)
        for flag in step.flags_read():
            yield from _check_name(step_path, flag, app.flags.flags if app.flags else ())
        for variable in step.variables_read():
            yield from _check_name(step_path, variable, list_variables(app, service))
        for file in step.files_read():
            yield from _check_name(step_path, file, list_mounted_files(app, service))
        for call in step.operations_called():
            yield from _check_name(step_path, call.service, app.services)
            if call.service in app.services:
                yield from _check_name(step_path, call.operation, app.services[call.service].operations)


def _check_workload(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    path = ("services", service.name)
    if not (service.container and service.program):
        yield Problem(path, "a service that is not yet deployed must have container and program")
        return
    if not service.port and (service.operations or not service.background):
        yield Problem(path, "a service must have a port unless it has only consumers or tasks")
    yield from _check_pods(app, service)
    program, *arguments = service.program
    if "/" not in program and program not in PROGRAMS and service.image is None:
        yield Problem(
            (*path, "program"),
            f"{program!r} is not in the image; give {' or '.join(PROGRAMS)}, an absolute path, or an image that has it",
        )
    if program == "faultset-service":
        yield from _check_name((*path, "program"), arguments[0] if arguments else "", app.services)
        if service.port == METRICS_PORT:
            yield Problem((*path, "port"), f"port {METRICS_PORT} is reserved for metrics; choose another port")


def _check_pods(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    path = ("services", service.name)
    if service.claim and service.replicas > 1 and not service.stateful:
        yield Problem((*path, "replicas"), "only one pod can use a claim; make the service stateful, with storage")
    if service.claim and service.stateful:
        yield Problem((*path, "claim"), "a stateful service must have storage, one claim per pod, instead of a claim")
    if service.storage is not None and not service.stateful:
        yield Problem((*path, "storage"), "only a stateful service can have storage; use claim, or make it stateful")
    if service.stateful and not service.port:
        yield Problem((*path, "stateful"), "a stateful service must have a port")
    if service.stateful and service.peers in app.services:
        yield Problem(
            (*path, "stateful"), f"its headless Service {service.peers!r} is also another service; rename one"
        )
    for field, probe in (("readiness", service.readiness), ("liveness", service.liveness)):
        if probe is not None and not (probe.port or service.port):
            yield Problem((*path, field), "a probe must have a port if the service has none")


def _check_claims(app: AppSpec) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for service in app.services.values():
        if service.claim is not None:
            owner = owners.setdefault(service.claim, service.name)
            if owner != service.name:
                yield Problem(("services", service.name, "claim"), f"{owner} already uses the claim {service.claim!r}")


def _check_call_cycle(app: AppSpec) -> Iterator[Problem]:
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for service in app.services.values():
        for name, operation in service.operations.items():
            for _, step in all_steps(operation.steps):
                for call in step.operations_called():
                    callers.setdefault((call.service, call.operation), set()).add((service.name, name))
    try:
        graphlib.TopologicalSorter(callers).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]
        path = " calls ".join(f"{service} {operation}" for service, operation in cycle)
        service, operation = cycle[0]
        yield Problem(("services", service, "operations", operation), f"calls must not form a cycle: {path}")


def _check_wait_cycle(app: AppSpec) -> Iterator[Problem]:
    awaited = {
        service.name: [init.wait_for for init in service.init if init.wait_for in app.services]
        for service in app.services.values()
    }
    try:
        graphlib.TopologicalSorter(awaited).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]
        path = " waits for ".join(reversed(cycle))
        yield Problem(("services", cycle[0], "init"), f"init containers must not wait for each other: {path}")


def _check_entry(app: AppSpec) -> Iterator[Problem]:
    entry = app.services.get(app.entry.service)
    if entry is None:
        return
    if entry.port and entry.port != app.entry.port:
        yield Problem(("entry",), f"the port must be {entry.port}, on which {entry.name} listens, got {app.entry.port}")
    if not entry.runs_faultset_service or entry.runs is not None:
        return
    for name, request in app.requests.items():
        if find_route(request.path, entry.operations, request.method) is None:
            operations = ", ".join(entry.operations) or "nothing"
            yield Problem(
                ("requests", name, "path"), f"{entry.name} does not serve {request.endpoint}; it serves {operations}"
            )
