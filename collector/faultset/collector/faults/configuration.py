"""Keys of ConfigMaps that services cannot do without, for faults of configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from faultset.collector.spec.app import AppSpec, ServiceSpec

Use = Literal["variable", "group", "file", "folder"]


class NeededKey(NamedTuple):
    """A key of a ConfigMap that a service cannot do without, and what it is to its container.

    A `variable` is named by itself, one of a `group` comes with all keys of its object; a `file` is named by itself,
    one of a `folder` comes with all keys of its object.
    """

    config_map: str
    key: str
    use: Use


def needed_keys(app: AppSpec, service: str) -> tuple[NeededKey, ...]:
    """Return the keys of ConfigMaps of the spec that a service cannot do without."""
    return tuple(dict.fromkeys(_needed_keys(app, app.services[service])))


def configured_services(app: AppSpec) -> tuple[str, ...]:
    """Return the services with a Deployment of their own that cannot do without some key of a ConfigMap."""
    return tuple(name for name in app.services if app.has_deployment(name) and needed_keys(app, name))


def sharing_services(app: AppSpec, target: str) -> tuple[str, ...]:
    """Return the other services that refer to a ConfigMap of which a service needs keys; for `also_accepted`."""
    objects = {needed.config_map for needed in needed_keys(app, target)}
    return tuple(name for name, other in app.services.items() if name != target and objects & {*_config_maps(other)})


def _config_maps(service: ServiceSpec) -> Iterator[str]:
    for source in (*service.environment.values(), *service.environment_from, *service.files.values()):
        if source.config is not None:
            yield source.config


def _needed_keys(app: AppSpec, service: ServiceSpec) -> Iterator[NeededKey]:
    variables = {name for _, step in service.steps() for name in step.variables_read()}
    files = {PurePosixPath(path) for _, step in service.steps() for path in step.files_read()}
    for variable in service.environment.values():
        if variable.config is not None and variable.key is not None and not variable.optional:
            yield NeededKey(variable.config, variable.key, "variable")
    for group in service.environment_from:
        for key in app.configs.get(group.config or "", ()):
            if f"{group.prefix}{key}" in variables:
                yield NeededKey(str(group.config), key, "group")
    for folder, mounted in service.files.items():
        if mounted.config is None or mounted.optional:
            continue
        for key in mounted.items or ():
            yield NeededKey(mounted.config, key, "file")
        for key in () if mounted.items else app.configs.get(mounted.config, ()):
            if PurePosixPath(folder) / key in files:
                yield NeededKey(mounted.config, key, "folder")
