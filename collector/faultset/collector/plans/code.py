"""Identify the code of a campaign: faults, applications, load drivers, platform and sources."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from faultset.collector.apps import GROUP as APPS
from faultset.collector.apps import is_path, load_app
from faultset.collector.faults.registry import GROUP as FAULTS
from faultset.collector.faults.registry import FaultSpec
from faultset.collector.load.driver import GROUP as LOAD_DRIVERS
from faultset.collector.platforms.hosts import GROUP as PLATFORMS
from faultset.collector.sources.recorder import GROUP as SOURCES
from faultset.core.code_identity import CodeIdentity, code_identity, path_identity, plugin_identity
from faultset.core.plugins import plugins

_FAULTS_PACKAGE = "faultset.collector.faults"


def campaign_code(
    faults: list[FaultSpec], apps: tuple[str, ...], platform: str, sources: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the identity of each piece of code, by "fault NAME", "app NAME" and so on.

    Built-in platforms, sources and load drivers are left out, because the version of faultset identifies them.

    Parameters
    ----------
    apps
        Names of applications, or paths of their folders or files.
    sources
        Names of the sources that the campaign adds.
    """
    entries = plugins(FAULTS)
    identities = {
        f"fault {spec.name}": code_identity(spec.inject, entries.get(spec.name), within=_FAULTS_PACKAGE)
        for spec in faults
    }
    load_drivers, installed_sources = plugins(LOAD_DRIVERS), plugins(SOURCES)
    used_plugins = [plugins(PLATFORMS).get(platform), *(installed_sources.get(name) for name in sources)]
    for name in apps:
        app = load_app(name)
        identities[f"app {app.name}"] = identify_app(name)
        used_plugins.append(load_drivers.get(app.load.driver))
    kinds = {PLATFORMS: "platform", SOURCES: "source", LOAD_DRIVERS: "load driver"}
    for plugin in used_plugins:
        if plugin is not None and not plugin.built_in:
            identities[f"{kinds[plugin.group]} {plugin.name}"] = plugin_identity(plugin)
    return {name: str(identity) for name, identity in sorted(identities.items())}


def identify_app(name: str) -> CodeIdentity:
    """Identify an application by the content of its folder or file, and by its distribution if installed."""
    if is_path(name):
        return path_identity(Path(name))
    plugin = plugins(APPS)[name]
    loaded = plugin.load()
    if isinstance(loaded, ModuleType) and not plugin.built_in:
        return plugin_identity(plugin)
    path = Path(str(loaded.__file__)).parent if isinstance(loaded, ModuleType) else Path(str(loaded))
    return CodeIdentity(distribution=plugin.distribution, digest=path_identity(path).digest)
