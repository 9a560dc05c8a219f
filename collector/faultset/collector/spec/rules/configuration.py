"""Check the configuration of containers: missing objects and keys, reserved names and folders."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import CREDENTIALS_PATH, DATA_PATH, SPEC_PATH
from faultset.collector.spec.features.configuration import ConfigurationSource, config_data
from faultset.collector.spec.features.pods import ContainerFields
from faultset.collector.spec.steps import FieldPath
from faultset.core.printable import describe_choices

Finding = tuple[FieldPath, str]
"""Path of a field, and the problem in one sentence."""

LARGEST_OBJECT = 1 << 20
"""Size limit of a ConfigMap or Secret in bytes."""
RESERVED_VARIABLES = ("POD_NAME", "POD_IP", "POD_NAMESPACE", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that every container has."""

_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def configuration_problems(app: AppSpec) -> Iterator[Finding]:
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
            if not _OBJECT.fullmatch(name):
                yield path, f"a name must consist of lower-case letters, digits, hyphens and dots, got {name!r}"
            if name in used_names:
                yield path, f"{name!r} is the name of the object with {used_names[name]}; choose another name"
            size = sum(
                len(text.encode()) for text in config_data({k: text or "" for k, text in texts.items()}).values()
            )
            if size > LARGEST_OBJECT:
                yield path, f"a ConfigMap or Secret must not exceed 1 MiB, got {size} bytes"
            for key, text in texts.items():
                if field == "configs" and text is None:
                    yield (*path, key), "a key of a ConfigMap must have a value: text, or data that is written as JSON"
                if not _KEY.fullmatch(key):
                    yield (
                        (*path, key),
                        f"a key must consist of letters, digits, hyphens, dots and underscores, got {key!r}",
                    )


def container_problems(app: AppSpec, container: ContainerFields, parent_path: FieldPath) -> Iterator[Finding]:
    """Yield the problems of a container's configuration.

    Parameters
    ----------
    parent_path
        Path of the container in the spec.
    """
    for request, limit in (("cpu_request", "cpu_limit"), ("memory_request_mib", "memory_limit_mib")):
        value, maximum = getattr(container, request), getattr(container, limit)
        if request in container.model_fields_set and value > maximum:
            yield (*parent_path, request), f"{request} must not exceed {limit} ({maximum:g}), got {value:g}"
    for name, variable in container.environment.items():
        field_path = (*parent_path, "environment", name)
        if not _VARIABLE.fullmatch(name):
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
) -> Iterator[Finding]:
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


def _check_folder(app: AppSpec, container: ContainerFields, field_path: FieldPath, path: str) -> Iterator[Finding]:
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
