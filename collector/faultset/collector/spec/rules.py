"""Check a spec across its fields: references, names, configuration, workloads and cycles."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.containers import (
    CREDENTIALS_PATH,
    DATA_PATH,
    METRICS_PORT,
    SPEC_PATH,
    ConfigurationSource,
    ContainerFields,
    config_data,
)
from faultset.collector.spec.routes import find_route
from faultset.collector.spec.steps import FieldPath, all_steps
from faultset.core.printable import describe_choices

T = TypeVar("T")
Problem = tuple[FieldPath, str]
"""Path of a field, and the problem in one sentence."""

MAX_OBJECT_BYTES = 1 << 20
"""Size limit of a ConfigMap or Secret in bytes."""
RESERVED_VARIABLES = ("POD_NAME", "POD_IP", "POD_NAMESPACE", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that every container has."""

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_OBJECT_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_VARIABLE_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
PROGRAMS = ("faultset-service", "faultset-store")


def configuration_problems(app: AppSpec) -> Iterator[Problem]:
    """Yield the problems of an application's ConfigMaps and Secrets."""
    used_names = {f"{app.name}-config": "the spec", f"{app.name}-store-accounts": "the passwords of stores"}
    used_names |= {
        f"{service.name}-credentials": f"the passwords of {service.name}" for service in app.services.values()
    }
    if app.flags is not None:
        used_names[app.flags.config_map] = "the feature flags"
    for field, objects in (("configs", app.configs), ("secrets", app.secrets)):
        for name, texts in objects.items():
            path = (field, name)
            if not _OBJECT_NAME.fullmatch(name):
                yield path, f"a name must consist of lower-case letters, digits, hyphens and dots, got {name!r}"
            if name in used_names:
                yield path, f"{name!r} is the name of the object with {used_names[name]}; choose another name"
            contents = config_data({key: text or "" for key, text in texts.items()})
            size = sum(len(text.encode()) for text in contents.values())
            if size > MAX_OBJECT_BYTES:
                yield path, f"a ConfigMap or Secret must not exceed 1 MiB, got {size} bytes"
            for key, text in texts.items():
                if field == "configs" and text is None:
                    yield (*path, key), "a key of a ConfigMap must have a value: text, or data that is written as JSON"
                if not _OBJECT_KEY.fullmatch(key):
                    reason = f"a key must consist of letters, digits, hyphens, dots and underscores, got {key!r}"
                    yield (*path, key), reason


def container_problems(app: AppSpec, container: ContainerFields, parent_path: FieldPath) -> Iterator[Problem]:
    """Yield the problems of the configuration of a container with this path in the spec."""
    for request, limit in (("cpu_request", "cpu_limit"), ("memory_request_mib", "memory_limit_mib")):
        value, maximum = getattr(container, request), getattr(container, limit)
        if request in container.model_fields_set and value > maximum:
            yield (*parent_path, request), f"{request} must not exceed {limit} ({maximum:g}), got {value:g}"
    for name, variable in container.environment.items():
        field_path = (*parent_path, "environment", name)
        if not _VARIABLE_NAME.fullmatch(name):
            yield field_path, f"a variable must consist of letters, digits, hyphens, dots and underscores, got {name!r}"
        if name in RESERVED_VARIABLES or name.startswith("FAULTSET_"):
            yield field_path, f"{name} is set by the platform; choose another name"
        if variable.source is not None:
            yield from _check_references(app, field_path, variable, (variable.key or "",))
    for number, group in enumerate(container.environment_from):
        yield from _check_references(app, (*parent_path, "environment_from", number), group, ())
    for path, mounted in container.files.items():
        field_path = (*parent_path, "files", path)
        yield from _check_folder(app, container, field_path, path)
        yield from _check_references(app, field_path, mounted, mounted.items)
        for file in mounted.items.values():
            if file.startswith("/") or ".." in PurePosixPath(file).parts:
                yield field_path, f"a file must have a path inside its folder, got {file!r}"


def list_variables(app: AppSpec, container: ContainerFields) -> tuple[str, ...]:
    """Return the names of a container's variables, except RESERVED_VARIABLES."""
    objects = list_configuration_objects(app)
    grouped = (
        f"{group.prefix}{key}"
        for group in container.environment_from
        for key in objects.get((group.kind, group.source or ""), ())
    )
    return (*container.environment, *grouped)


def list_mounted_files(app: AppSpec, container: ContainerFields) -> tuple[str, ...]:
    """Return the paths of the files that a container mounts with its field `files`."""
    objects = list_configuration_objects(app)
    return tuple(
        str(PurePosixPath(folder) / file)
        for folder, mounted in container.files.items()
        for file in (mounted.items.values() or objects.get((mounted.kind, mounted.source or ""), ()))
    )


def list_configuration_objects(app: AppSpec) -> Mapping[tuple[str, str], Collection[str]]:
    """Return the keys of the ConfigMaps and Secrets that containers may refer to, by kind and name."""
    objects: dict[tuple[str, str], Collection[str]] = {("ConfigMap", name): keys for name, keys in app.configs.items()}
    if app.flags is not None:
        objects["ConfigMap", app.flags.config_map] = (app.flags.file,)
    return objects | {("Secret", name): keys for name, keys in app.secrets.items()}


def _check_references(
    app: AppSpec, field_path: FieldPath, source: ConfigurationSource, keys: Collection[str]
) -> Iterator[Problem]:
    if source.optional:
        return
    objects = list_configuration_objects(app)
    names = sorted(name for kind, name in objects if kind == source.kind)
    if source.source not in names:
        yield field_path, f"unknown {source.kind} {source.source!r}, {describe_choices(names)}"
        return
    existing = objects[source.kind, source.source]
    for key in keys:
        if key not in existing:
            choices = describe_choices(sorted(existing))
            yield field_path, f"unknown key {key!r} of {source.kind} {source.source}, {choices}"


def _check_folder(app: AppSpec, container: ContainerFields, field_path: FieldPath, path: str) -> Iterator[Problem]:
    folder = PurePosixPath(path)
    if not folder.is_absolute() or ".." in folder.parts or len(folder.parts) < 2:
        yield field_path, f"files must be mounted into a folder with an absolute path, got {path!r}"
        return
    reserved_folders = [PurePosixPath(SPEC_PATH).parent, PurePosixPath(DATA_PATH), PurePosixPath(CREDENTIALS_PATH)]
    if app.flags is not None:
        reserved_folders.append(PurePosixPath(app.flags.folder))
    others = [*reserved_folders, *(PurePosixPath(other) for other in container.files if other != path)]
    for other in others:
        if folder.is_relative_to(other) or other.is_relative_to(folder):
            yield field_path, f"{path} overlaps {other}, which is already mounted; choose another folder"


_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?")


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
        yield path, f"unknown name {name!r}, {describe_choices(sorted(known))}"


def _check_form(path: FieldPath, name: str) -> Iterator[Problem]:
    if not _SERVICE_NAME.fullmatch(name):
        yield path, f"a name must be at most 53 lower-case letters, digits and hyphens, got {name!r}"


def _check_top_level(app: AppSpec) -> Iterator[Problem]:
    for name in (app.name, *app.services) if app.deployed is None else ():
        yield from _check_form(("name",) if name == app.name else ("services", name), name)
    yield from _check_name(("entry",), app.entry.service, app.services)
    yield from _check_name(("default_mix",), app.default_mix, app.mixes)
    if app.registry is not None:
        yield from _check_name(("registry",), app.registry, app.services)
    yield from _check_flags(app)
    yield from _check_operator(app)
    yield from configuration_problems(app)
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
        yield ("operator", "service"), "an application that is not yet deployed must name the operator's service"
    for number, component in enumerate(app.operator.components):
        path = ("operator", "components", number)
        yield from _check_name(path, component, app.services)
        if component == app.operator.service:
            yield path, f"the operator {component} cannot create itself; list only the services it creates"
        elif component in app.services and not app.services[component].stateful:
            yield path, f"{component} must be stateful, because an operator creates StatefulSets"


def _check_containers(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    path: FieldPath = ("services", service.name)
    yield from container_problems(app, service, path)
    names = {service.container}
    for number, init in enumerate(service.init):
        init_path = (*path, "init", number)
        yield from container_problems(app, init, init_path)
        yield from _check_form(init_path, init.name)
        if init.name in names:
            yield init_path, f"another container of {service.name} has the name {init.name!r}; rename one"
        names.add(init.name)
        if (awaited := init.wait_for) is not None:
            wait_path = (*init_path, "wait_for")
            yield from _check_name(wait_path, awaited, app.services)
            if awaited == service.name:
                yield wait_path, f"{service.name} cannot wait for itself; name another service"
            elif awaited in app.services and not app.services[awaited].port:
                yield wait_path, f"{awaited} must have a port to be waited for"
        elif "/" not in init.program[0] and init.image is None:
            reason = f"{init.program[0]!r} is not in the image; give an absolute path, or an image that has it"
            yield (*init_path, "program"), reason


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
        for names, declared in (
            (step.stores_used(), service.stores),
            (step.indexes_used(), service.indexes),
            (step.flags_read(), app.flags.flags if app.flags else ()),
            (step.variables_read(), list_variables(app, service)),
            (step.files_read(), list_mounted_files(app, service)),
        ):
            for name in names:
                yield from _check_name(step_path, name, declared)
        for call in step.operations_called():
            yield from _check_name(step_path, call.service, app.services)
            if call.service in app.services:
                yield from _check_name(step_path, call.operation, app.services[call.service].operations)


def _check_workload(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    path = ("services", service.name)
    if not (service.container and service.program):
        yield path, "a service that is not yet deployed must have container and program"
        return
    if not service.port and (service.operations or not service.background):
        yield path, "a service must have a port unless it has only consumers or tasks"
    yield from _check_pods(app, service)
    program, *arguments = service.program
    if "/" not in program and program not in PROGRAMS and service.image is None:
        choices = f"{' or '.join(PROGRAMS)}, an absolute path, or an image that has it"
        yield (*path, "program"), f"{program!r} is not in the image; give {choices}"
    if program == "faultset-service":
        yield from _check_name((*path, "program"), arguments[0] if arguments else "", app.services)
        if service.port == METRICS_PORT:
            yield (*path, "port"), f"port {METRICS_PORT} is reserved for metrics; choose another port"


def _check_pods(app: AppSpec, service: ServiceSpec) -> Iterator[Problem]:
    path, stateful = ("services", service.name), service.stateful
    if service.claim and service.replicas > 1 and not stateful:
        yield (*path, "replicas"), "only one pod can use a claim; make the service stateful, with storage"
    if service.claim and stateful:
        yield (*path, "claim"), "a stateful service must have storage, one claim per pod, instead of a claim"
    if service.storage is not None and not stateful:
        yield (*path, "storage"), "only a stateful service can have storage; use claim, or make it stateful"
    if stateful and not service.port:
        yield (*path, "stateful"), "a stateful service must have a port"
    if stateful and service.peers in app.services:
        yield (*path, "stateful"), f"its headless Service {service.peers!r} is also another service; rename one"
    for field, probe in (("readiness", service.readiness), ("liveness", service.liveness)):
        if probe is not None and not (probe.port or service.port):
            yield (*path, field), "a probe must have a port if the service has none"


def _check_claims(app: AppSpec) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for service in app.services.values():
        if service.claim is not None:
            owner = owners.setdefault(service.claim, service.name)
            if owner != service.name:
                yield ("services", service.name, "claim"), f"{owner} already uses the claim {service.claim!r}"


def _find_cycle(graph: Mapping[T, Iterable[T]]) -> Sequence[T]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return ()


def _check_call_cycle(app: AppSpec) -> Iterator[Problem]:
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for service in app.services.values():
        for name, operation in service.operations.items():
            for _, step in all_steps(operation.steps):
                for call in step.operations_called():
                    callers.setdefault((call.service, call.operation), set()).add((service.name, name))
    if cycle := _find_cycle(callers):
        path = " calls ".join(f"{service} {operation}" for service, operation in cycle)
        yield ("services", cycle[0][0], "operations", cycle[0][1]), f"calls must not form a cycle: {path}"


def _check_wait_cycle(app: AppSpec) -> Iterator[Problem]:
    awaited = {
        service.name: [init.wait_for for init in service.init if init.wait_for in app.services]
        for service in app.services.values()
    }
    if cycle := _find_cycle(awaited):
        path = " waits for ".join(map(str, reversed(cycle)))
        yield ("services", str(cycle[0]), "init"), f"init containers must not wait for each other: {path}"


def _check_entry(app: AppSpec) -> Iterator[Problem]:
    entry = app.services.get(app.entry.service)
    if entry is None:
        return
    if entry.port and entry.port != app.entry.port:
        yield ("entry",), f"the port must be {entry.port}, on which {entry.name} listens, got {app.entry.port}"
    if not entry.runs_faultset_service or entry.runs is not None:
        return
    for name, request in app.requests.items():
        if find_route(request.path, entry.operations, request.method) is None:
            operations = ", ".join(entry.operations) or "nothing"
            yield ("requests", name, "path"), f"{entry.name} does not serve {request.endpoint}; it serves {operations}"
