"""What containers may not refer to: objects and keys that are not there, reserved names, and folders of ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import CREDENTIALS_PATH, DATA_PATH, SPEC_PATH
from faultset.collector.spec.features.configuration import ConfigurationSource, config_data
from faultset.collector.spec.features.pods import ContainerFields
from faultset.collector.spec.steps import Place

Found = tuple[Place, str]
"""Where something is wrong, and a sentence."""

LARGEST_OBJECT = 1 << 20
"""Most bytes that an object may hold."""
RESERVED_VARIABLES = ("POD_NAME", "POD_IP", "POD_NAMESPACE", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that containers have anyway."""

_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def configuration_problems(app: AppSpec) -> Iterator[Found]:
    """Yield what is wrong with an application's ConfigMaps and Secrets."""
    taken = {f"{app.name}-config": "the spec", f"{app.name}-store-accounts": "the passwords of stores"}
    taken |= {f"{service.name}-credentials": f"the passwords of {service.name}" for service in app.services.values()}
    if app.flags is not None:
        taken[app.flags.config_map] = "the feature flags"
    for part, objects in (("configs", app.configs), ("secrets", app.secrets)):
        for name, texts in objects.items():
            place = (part, name)
            if not _OBJECT.fullmatch(name):
                yield place, f"a name has lower-case letters, digits, hyphens and dots; found {name!r}"
            if name in taken:
                yield place, f"{name!r} is the name of the object with {taken[name]}; choose another one"
            size = sum(
                len(text.encode()) for text in config_data({k: text or "" for k, text in texts.items()}).values()
            )
            if size > LARGEST_OBJECT:
                yield place, f"Kubernetes keeps 1 MiB in a ConfigMap or Secret; found {size} bytes"
            for key, text in texts.items():
                if part == "configs" and text is None:
                    yield (*place, key), "a key of a ConfigMap needs a text, or a value that is written as JSON"
                if not _KEY.fullmatch(key):
                    yield (*place, key), f"a key has letters, digits, hyphens, dots and underscores; found {key!r}"


def container_problems(app: AppSpec, container: ContainerFields, place: Place) -> Iterator[Found]:
    """Yield what is wrong with what a container is given; it stands at a place of the spec."""
    for request, limit in (("cpu_request", "cpu_limit"), ("memory_request_mib", "memory_limit_mib")):
        wanted, most = getattr(container, request), getattr(container, limit)
        if request in container.model_fields_set and wanted > most:
            yield (*place, request), f"a container cannot request more than its {limit}, {most:g}; found {wanted:g}"
    for name, variable in container.environment.items():
        where = (*place, "environment", name)
        if not _VARIABLE.fullmatch(name):
            yield where, f"a variable has letters, digits, hyphens, dots and underscores; found {name!r}"
        if name in RESERVED_VARIABLES or name.startswith("FAULTSET_"):
            yield where, f"{name} is set by the platform; choose another name"
        if variable.source is not None:
            yield from _references(app, where, variable, (variable.key or "",))
    for number, group in enumerate(container.environment_from):
        yield from _references(app, (*place, "environment_from", number), group, ())
    for path, mounted in container.files.items():
        where = (*place, "files", path)
        yield from _folder(app, container, where, path)
        yield from _references(app, where, mounted, mounted.items)
        for file in mounted.items.values():
            if file.startswith("/") or ".." in PurePosixPath(file).parts:
                yield where, f"a file has a path inside its folder; found {file!r}"


def variables_of(app: AppSpec, container: ContainerFields) -> tuple[str, ...]:
    """Return the names of the variables that a container has, but for those that all have."""
    known = objects_of(app)
    grouped = (
        f"{group.prefix}{key}"
        for group in container.environment_from
        for key in known.get((group.kind, group.source or ""), ())
    )
    return (*container.environment, *grouped)


def files_of(app: AppSpec, container: ContainerFields) -> tuple[str, ...]:
    """Return the paths of the files that a container mounts by its field `files`."""
    known = objects_of(app)
    return tuple(
        str(PurePosixPath(folder) / file)
        for folder, mounted in container.files.items()
        for file in (mounted.items.values() or known.get((mounted.kind, mounted.source or ""), ()))
    )


def objects_of(app: AppSpec) -> Mapping[tuple[str, str], Collection[str]]:
    """Return the keys of each ConfigMap and Secret that containers may refer to, by kind and name."""
    known: dict[tuple[str, str], Collection[str]] = {("ConfigMap", name): keys for name, keys in app.configs.items()}
    if app.flags is not None:
        known["ConfigMap", app.flags.config_map] = (app.flags.file,)
    return known | {("Secret", name): keys for name, keys in app.secrets.items()}


def _references(app: AppSpec, place: Place, source: ConfigurationSource, keys: Collection[str]) -> Iterator[Found]:
    if source.optional:
        return
    known = objects_of(app)
    names = sorted(name for kind, name in known if kind == source.kind)
    if source.source not in names:
        yield place, f"it names the {source.kind} {source.source!r}, which is not among {', '.join(names) or 'none'}"
        return
    there = known[source.kind, source.source]
    for key in keys:
        if key not in there:
            listed = ", ".join(sorted(there)) or "none"
            yield place, f"it names the key {key!r} of {source.kind} {source.source}, which has {listed}"


def _folder(app: AppSpec, container: ContainerFields, place: Place, path: str) -> Iterator[Found]:
    folder = PurePosixPath(path)
    if not folder.is_absolute() or ".." in folder.parts or len(folder.parts) < 2:
        yield place, f"files are mounted into a folder with an absolute path; found {path!r}"
        return
    ours = [PurePosixPath(SPEC_PATH).parent, PurePosixPath(DATA_PATH), PurePosixPath(CREDENTIALS_PATH)]
    if app.flags is not None:
        ours.append(PurePosixPath(app.flags.folder))
    others = [*ours, *(PurePosixPath(other) for other in container.files if other != path)]
    for other in others:
        if folder.is_relative_to(other) or other.is_relative_to(folder):
            yield place, f"{path} overlaps {other}, which is mounted already; choose another folder"
